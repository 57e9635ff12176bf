"""The shell around stages: two lines for the user's mistakes, a traceback for ours, an exit code for both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core import cli
from harness.core.errors import InferometerError, MissingInputError, RegressionError, StorageError, UsageError

ROOT = Path(__file__).parents[3]


def leaving(stage: BaseException | None) -> int:
    def run(arguments: Sequence[str]) -> None:
        if stage is not None:
            raise stage

    with pytest.raises(SystemExit) as caught:
        cli.main(run, [])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_stage_that_succeeds_returns() -> None:
    cli.main(lambda arguments: cli.say(f"got {list(arguments)}"), ["--x"])


@pytest.mark.parametrize("kind", [MissingInputError, StorageError])
def test_a_users_mistake_is_two_lines_and_its_code(
    capsys: pytest.CaptureFixture[str], kind: type[InferometerError]
) -> None:
    assert leaving(kind("It is not there.", "Make it.")) == kind.exit_code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Error: It is not there.\nHint:  Make it.\n")


def test_a_message_of_a_library_of_several_lines_is_still_two(capsys: pytest.CaptureFixture[str]) -> None:
    leaving(MissingInputError("It said:\n  no\n\nmore.", "Make it,\nthen again."))
    assert cli.last_error(capsys.readouterr().err) == ("It said: no more.", "Make it, then again.")


def test_a_bug_shows_its_traceback_and_is_no_regression(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaving(ZeroDivisionError("ours")) == 70 != RegressionError.exit_code
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[-1] == "ZeroDivisionError: ours"


def test_ctrl_c_is_130_and_says_that_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaving(KeyboardInterrupt()) == 130
    assert "Measured results are kept" in capsys.readouterr().err


def test_warnings_go_to_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    cli.warn("look")
    assert capsys.readouterr() == ("", "Warning: look\n")


@pytest.fixture
def typed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user typed `python -m harness.<stage>`."""
    monkeypatch.delenv("INFEROMETER_FRONT")


@pytest.mark.usefixtures("typed_by_hand")
def test_an_unknown_option_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parser("harness.plan", "Doc.").parse_args(["--nothing"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "Error: unrecognized arguments: --nothing\nHint:  python -m harness.plan --help\n"
    )


@pytest.mark.usefixtures("typed_by_hand")
@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["--batch", "1"], "Did you mean --batches? python -m harness.plan --help"),
        (["--model=net.onnx"], "Did you mean --models? python -m harness.plan --help"),
        (["my net.onnx"], "Models are named by --models. python -m harness.plan --help"),
        (["--nothing"], "python -m harness.plan --help"),
    ],
)
def test_the_likely_option_of_an_unknown_argument_is_a_hint(
    given: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = cli.parser("harness.plan", "Doc.")
    parser.allow_abbrev = False
    parser.add_argument("--models")
    parser.add_argument("--batches")
    with pytest.raises(SystemExit):
        parser.parse_args(given)
    assert capsys.readouterr().err.endswith(f"Hint:  {hint}\n")


@pytest.mark.usefixtures("typed_by_hand")
@pytest.mark.parametrize("value", [["-resnet18"], []])
def test_a_value_with_a_leading_dash_is_named(value: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = cli.parser("harness.plan", "Doc.")
    parser.add_argument("--models")
    with pytest.raises(SystemExit):
        parser.parse_args(["--models", *value])
    problem = capsys.readouterr().err.splitlines()[0]
    assert problem == "Error: argument --models has no value, or one with a leading dash."


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--models"], "MODELS has no value, or one with a leading dash."),
        (["--rounds", "x"], "ROUNDS: `x` is not a whole number."),
        (["--device", "gpu"], "DEVICE: invalid choice: 'gpu' (choose from 'cpu', 'cuda')"),
    ],
)
def test_a_mistake_in_a_variable_of_make_names_it(
    given: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = cli.parser("harness.plan", "Doc.")
    parser.add_argument("--models")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    with pytest.raises(SystemExit):
        parser.parse_args(given)
    assert capsys.readouterr().err == f"Error: {problem}\nHint:  `make` alone lists all variables.\n"


def test_a_name_that_is_no_text_is_a_mistake_of_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(lambda _: None, ["--results", "/caf\udce9"])
    assert caught.value.code == UsageError.exit_code
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith("is no text in utf-8.")
    assert "Rename" in hint


def test_an_option_with_line_breaks_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parser("harness.plan", "Doc.").parse_args(["--no\nthing\x1b[2J"])
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_fault_and_no_file_gets_its_number(closed: str, tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys; from harness.core import cli\n"
        "def stage(words):\n"
        "    with open('file', 'w') as file:\n"
        "        assert file.fileno() > 2\n"
        "        subprocess.run(['sh', '-c', 'echo from a child; echo from a child >&2'], check=True)\n"
        "        sys.stdout.isatty(), sys.stderr.isatty()\n"
        "cli.main(stage, [])"
    )
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("ValueError('Error building validator:\\n  KeyboardInterrupt: ')", 130, "Stopped before it began."),
        ("UsageError('a', 'b')", 2, "Error: a"),
        ("ImportError('broken')", 70, "ImportError: broken"),
    ],
)
def test_an_exception_before_main_never_ends_with_the_code_of_a_regression(raised: str, code: int, said: str) -> None:
    program = (
        "import sys; from harness.core.cli import uncaught; from harness.core.errors import UsageError\n"
        f"sys.excepthook = uncaught; raise {raised}"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr


def test_folder_options_are_the_same_in_every_stage() -> None:
    parser = cli.parser("harness.run", None)
    cli.add_folders(parser)
    given = parser.parse_args(["--results", "r", "--models-dir", "m"])
    assert (str(given.results), str(given.models_dir)) == ("r", "m")


@pytest.mark.parametrize("option", ["--results", "--models-dir"])
def test_an_empty_folder_name_is_not_the_current_folder(option: str) -> None:
    parser = cli.parser("harness.run", None)
    cli.add_folders(parser)
    with pytest.raises(UsageError, match="empty"):
        parser.parse_args([option, ""])


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_closed_pipe_is_quiet_whether_the_text_fits_the_buffer_or_not(lines: int) -> None:
    code = (
        "from harness.core import cli\n"
        "def run(arguments):\n"
        f"    for _ in range({lines}): print('x' * 80)\n"
        "cli.main(run, [])\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_two_lines_of_an_error_are_read_back_from_a_log() -> None:
    log = "Warning: something\nError: first.\nHint:  a.\nnoise\nError: It is not there.\nHint:  Make it.\nmore noise\n"
    assert cli.last_error(log) == ("It is not there.", "Make it.")
    assert cli.last_error("Error: cut off") is None
    assert cli.last_error("Error: of a library\nsomething else\n") is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full, which only Linux has")
@pytest.mark.parametrize(
    ("stage", "streams", "code", "shown"),
    [
        ("print('x')", {"stdout"}, 6, "Error: The disk is full: the output could not be written.\n"),
        ("print('x')", {"stdout", "stderr"}, 6, None),
        ("raise errors.UsageError('a', 'b')", {"stderr"}, 2, None),
        ("raise KeyError('a')", {"stderr"}, 70, None),
    ],
)
def test_a_full_disk_behind_the_output_is_said_and_keeps_the_exit_code(
    stage: str, streams: set[str], code: int, shown: str | None
) -> None:
    text = f"from harness.core import cli, errors\ndef run(arguments):\n    {stage}\ncli.main(run, [])\n"
    with Path("/dev/full").open("w") as full:
        wanted = {name: full if name in streams else subprocess.PIPE for name in ("stdout", "stderr")}
        done = subprocess.run([sys.executable, "-c", text], **wanted, text=True, check=False)  # type: ignore[call-overload]
    assert done.returncode == code
    assert shown is None or done.stderr.startswith(shown)


def test_a_closed_output_is_no_error() -> None:
    text = "from harness.core import cli\ncli.main(lambda arguments: cli.say('x'), [])\n"
    done = subprocess.run(["/bin/sh", "-c", '"$0" -c "$1" >&-', sys.executable, text], check=False)
    assert done.returncode == 0


def test_ctrl_c_while_a_stage_still_imports_its_libraries_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # A job in the background of a script ignores SIGINT, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "harness.plan"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True) as stage:
        assert stage.stdout is not None
        assert stage.stdout.readline() == "imported\n"
        stage.send_signal(signal.SIGINT)
        _, said = stage.communicate(timeout=900)
    assert said.strip() == "Stopped before it began."
    assert stage.returncode == -signal.SIGINT


def test_who_imports_the_package_keeps_the_hook_of_its_own() -> None:
    code = "import sys, harness; assert sys.excepthook is sys.__excepthook__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_no_terminal_lacks_a_character_that_ends_a_stage(encoding: str) -> None:
    code = (
        "from harness.core import cli\n"
        "def stage(arguments):\n"
        "    cli.say('2.92× ±5% … modèle 模型')\n"
        "    cli.warn('5 µs')\n"
        "cli.main(stage, [])\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode(encoding)
    assert "2.92" in said
    assert "??" in said, "characters without a stand-in are question marks"
    assert encoding != "ascii" or said.startswith("2.92x +-5% ... mod?le")


def test_printed_commands_of_a_stage_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stage(_: Sequence[str]) -> None:
        cli.say("`make roof FORCE=1` measures again.")
        cli.warn("Run `make report`.")
        raise UsageError("No plan.", "Run `make plan` first.")

    with pytest.raises(SystemExit):
        cli.main(stage, ["--results", f"{tmp_path}/r s"])
    folder = f"RESULTS='{tmp_path}/r s'"
    said = capsys.readouterr()
    assert said.out == f"`make roof {folder} FORCE=1` measures again.\n"
    assert said.err.splitlines() == [
        f"Warning: Run `make report {folder}`.",
        "Error: No plan.",
        f"Hint:  Run `make plan {folder}` first.",
    ]


def test_a_notice_is_on_the_error_stream_and_in_a_notebook_on_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.notice("2 cases: 2 min")
    assert capsys.readouterr() == ("", "2 cases: 2 min\n")
    monkeypatch.setattr(cli, "_kernel", lambda: SimpleNamespace(execution_count=1))
    monkeypatch.setattr(cli._Reader, "show_in_cell", lambda *_: None)
    cli.notice("2 cases: 2 min")
    assert capsys.readouterr() == ("2 cases: 2 min\n", "")


def test_progress_is_one_line_of_a_terminal_and_nothing_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.progress("run: [1/9]")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.progress("run: [1/9]")
    cli.progress("")
    assert capsys.readouterr().err == "\r\x1b[Krun: [1/9]\r\x1b[K"
