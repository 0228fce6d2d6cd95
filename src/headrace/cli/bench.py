"""`bench`: measurements."""

from typing import Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.progress import TerminalProgress

app = typer.Typer(help="Measurements.", no_args_is_help=True)


@app.command("list")
def list_(output: OutputOption = Output.table) -> None:
    """List the benchmarks."""
    from headrace.bench import BENCHMARKS

    rows = [(name, question) for name, (question, _) in BENCHMARKS.items()]
    document = [{"name": name, "question": question} for name, question in rows]
    show(document, output, lambda: grid(("benchmark", "question"), rows))


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(help="The benchmark.")],
    peers: Annotated[
        bool, typer.Option("--peers", help="Fetch other systems, and measure them in the same run.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Run a benchmark."""
    from headrace.bench import run_benchmark

    with TerminalProgress() as progress:
        result = run_benchmark(name, progress, peers=peers)

    def table() -> list[Any]:
        columns = list(dict.fromkeys(column for row in result.rows for column in row))
        rows = [[row.get(column) for column in columns] for row in result.rows]
        environment = ", ".join(f"{k} {v}" for k, v in result.environment.items())
        ratios = [f"{what}: {ratio}" for what, ratio in result.ratios.items()]
        return [grid([f">{c}" for c in columns], rows, name), *ratios, environment]

    show(result.to_json(), output, table)
