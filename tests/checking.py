"""Help for the tests of checks: run one on right and wrong answers; take solutions out of the chapters.

assert_check(checks.c104.ex1, right=[solution("104", 1), second_way], stub=stub("104", 1),
             wrong=[(forgets_mask, "looks ahead"), (transposed, "transposed"), (off_by_one, "off by one")])
"""

import ast
from pathlib import Path

import nbformat

CHAPTERS = Path(__file__).parents[1] / "chapters"


def assert_check(check, right, stub, wrong) -> None:
    """Two right answers pass, the stub is 'not written yet', each of three wrong ones gets its message.

    `wrong` lists pairs of an answer and a part of the message that names its mistake.
    """
    assert len(right) >= 2 and len(wrong) >= 3, "a check is tested on two right answers and three wrong ones"
    for number, answer in enumerate(right, 1):
        result = check.result(answer)
        assert result.passed, f"right answer {number} fails: {result.message}"
        assert "\n" not in result.message
    unwritten = check.result(stub)
    assert not unwritten.passed and "not written yet" in unwritten.message, unwritten
    for answer, part in wrong:
        result = check.result(answer)
        assert not result.passed, f"the wrong answer {answer} passes"
        assert part in result.message, f"{part!r} is not in {result.message!r}"
        assert "\n" not in result.message


def solution(chapter: str, exercise: int, folder: Path = CHAPTERS):
    """What the solution cell of an exercise hands to its check."""
    return answer_in(chapter, exercise, "solution", folder)


def stub(chapter: str, exercise: int, folder: Path = CHAPTERS):
    """What the stub of an exercise hands to its check."""
    return answer_in(chapter, exercise, "exercise", folder)


def answer_in(chapter: str, exercise: int, tag: str, folder: Path):
    """The first argument of the check, after the imports and definitions of the chapter and the tagged cell.

    No experiment of the chapter is run: of its cells only imports, functions, classes and constants count.
    """
    (path,) = folder.glob(f"{chapter}_*.ipynb")
    code = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    tagged = [cell for cell in code if tag in cell.metadata.get("tags", [])]
    checks = [cell for cell in code if "check" in cell.metadata.get("tags", [])]
    space: dict = {}
    exercises = [c for c in code if {"solution", "exercise", "check"} & set(c.metadata.get("tags", []))]
    for cell in code:
        if cell not in exercises:
            exec(compile(definitions(cell.source), path.name, "exec"), space)
    exec(compile(tagged[exercise - 1].source, path.name, "exec"), space)
    calls = [n for n in ast.walk(ast.parse(checks[exercise - 1].source)) if isinstance(n, ast.Call)]
    call = next(c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == f"ex{exercise}")
    return eval(compile(ast.Expression(call.args[0]), path.name, "eval"), space)


def definitions(source: str) -> ast.Module:
    """The imports, functions, classes and literal constants of a cell (magics left out)."""
    plain = "\n".join(
        line if not line.lstrip().startswith(("%", "!")) else "    pass" for line in source.splitlines()
    )
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    body = []
    for node in ast.parse(plain).body:
        literal = isinstance(node, ast.Assign) and all(
            isinstance(n, (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.USub, ast.Load))
            for n in ast.walk(node.value)
        )
        if isinstance(node, ast.Try):
            body += [n for n in node.body if isinstance(n, kept)]
        elif isinstance(node, kept) or literal:
            body.append(node)
    return ast.Module(body, [])
