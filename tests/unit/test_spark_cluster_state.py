"""What a Spark master that is still coming up answers is taken for: not yet."""

import pytest

from headrace.local.ports import choose_free
from headrace.testing.spark_cluster import master_state
from support.http import answering

FOR_PEOPLE = b"<!DOCTYPE html><html><body>Spark Master</body></html>"
FOR_PROGRAMS = b'{"status": "ALIVE", "aliveworkers": 0}'


@pytest.fixture
def page():
    """A master's address, and the answers it has still to give, each as (length told, bytes)."""
    answers = []

    def answer(request):
        length, body = answers.pop(0)
        request.send_response(200)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(body)

    with answering(answer) as address:
        yield address, answers


def test_a_masters_page_for_people_is_no_answer_yet(page):
    address, answers = page
    answers += [(len(FOR_PEOPLE), FOR_PEOPLE), (len(FOR_PROGRAMS), FOR_PROGRAMS)]
    assert master_state(address) == {}
    assert master_state(address) == {"status": "ALIVE", "aliveworkers": 0}


def test_an_answer_that_breaks_off_is_no_answer_yet(page):
    address, answers = page
    answers.append((len(FOR_PROGRAMS), FOR_PROGRAMS[:10]))
    assert master_state(address) == {}


def test_a_closed_port_is_no_answer_yet():
    (port,) = choose_free(1, ())
    assert master_state(f"http://127.0.0.1:{port}") == {}
