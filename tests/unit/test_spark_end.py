"""What Spark's end shows on a terminal."""

import socket
import socketserver

import pytest

from headrace.spark.session import quiet_about_ends


@pytest.mark.parametrize(("error", "is_told"), [(EOFError, False), (ValueError, True)])
def test_only_a_connection_that_ends_is_no_news(error, is_told, capsys):
    class Fails(socketserver.BaseRequestHandler):
        def handle(self):
            raise error("in the handler")

    with socketserver.TCPServer(("127.0.0.1", 0), Fails) as server:
        quiet_about_ends(server)
        with socket.create_connection(server.server_address):
            server.handle_request()
    assert ("in the handler" in capsys.readouterr().err) is is_told
