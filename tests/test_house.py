"""What docs/ARCHITECTURE.md promises of the house: order in every room, no circles, no type switch
on methods or models, and documentation that names what is there."""

import ast
import builtins
import dis
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import posteer

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "posteer"

ORDER = {
    "": "core tokens goals families models training banks evaluation methods results api sweeps "
    "paper views explorer cli __main__",
    "core": "errors shapes limits rounding reading spec caches files sealing locks leases "
    "claiming progress randomness counters calls device threads userfiles registry keeping "
    "showing weights",
    "tokens": "vocabularies contexts prompts conditions drawing",
    "goals": "protocol user dyck frequency reverse_cross_entropy objectives utilities",
    "families": "protocol reading registry tallies finite_state atoms markov context_trees",
    "families.finite_state": "values expectations fit machines unifilar suffixes tilt",
    "families.atoms": "side_by_side prior classified files named random_machines ginc",
    "families.context_trees": "law nodes belief closure latents growing posterior prior",
    "families.markov": "kernels walks unvisited means urns tilt geometric prompt_classes family "
    "prior dirichlet mixtures draws fit",
    "families.markov.fit": "dirichlet_mixture expectation_maximisation goodness selection "
    "densities",
    "models": "held_weights laws calling protocol shares trees meter exact conditioned function "
    "continuations transformer wrapped registry abilities shipped personas",
    "models.wrapped": "alphabets caches worded huggingface modules folders smollm2 wrapping",
    "models.transformer": "decode narrow network packed model one_layer checkpoint",
    "training": "plan many data folder loop ranks",
    "banks": "histories correction probes drawn reweighed atoms parts plans kept shipped tuning "
    "reading rollouts sizing sharding sampling checks",
    "banks.checks": "statistics tracing reference convergence exchangeability moments atoms "
    "families prior martingale ranks power departure report",
    "evaluation": "values ranking",
    "methods": "answers watching cautions protocol registry needs forecasting latent_source "
    "prices corrected adaptive verify scorers direct climbing bounds ppt classes auto",
    "methods.scorers": "protocol posterior exact importance conjugate smc choice",
    "methods.bounds": "odds search unrolled boxes rows method",
    "methods.climbing": "moves token_moves prompt_moves climb search candidates prompts "
    "latents filtered method",
    "methods.ppt": "estimator updates ascent fused snap batches states method",
    "methods.ppt.fused": "inputs compiling lanes closed_forms philox_lanes sums steps cpu "
    "gpu_matrices gpu_sums gpu_step gpu ascending",
    "methods.direct": "field exhaustive random_search coordinate beam gcg prefixes",
    "api": "judging eliciting evaluating comparing",
    "sweeps": "configuration presets histories provenance runs records packs manifest store "
    "mending parquet forecast splitting runner results jobs executors execution drawing trainings",
    "sweeps.jobs": "protocol sweep draw train",
    "sweeps.executors": "protocol watching local on_slurm on_ray",
    "paper": "published presets cells layouts paired agreement power joint claim_checks claim_list "
    "claims tables",
    "views": "sentences catalogue machine figures terminal paper notebook pages",
    "views.figures": "canvas compare checks sweep",
    "views.terminal": "panels training record banks compare sweep show models catalogue",
    "views.paper": "figures reasons report",
    "views.notebook": "html plots frames",
    "views.pages": "bundle columns curves latents facts report",
    "explorer": "menu asked frames runs steering guard server",
    "cli": "loading options checking sweep trainings pages listing __main__",
}
"""The modules and packages of each room, each importing only from those before it."""


def modules():
    """Every module by its name below `posteer`, and its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def imports_of(text, name):
    """The modules of posteer that a file imports anywhere, lazily or not."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("posteer"):
            home = node.module.removeprefix("posteer").removeprefix(".")
            for alias in node.names:
                full = f"{home}.{alias.name}".removeprefix(".")
                found.add(full if full in MODULES else home)
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("posteer.") for a in node.names if "posteer." in a.name}
    return found - {name, ""}


IMPORTS = {name: imports_of(path.read_text(), name) for name, path in MODULES.items() if name}


def below(package, module):
    """The child of a package that a module is, or is in; None if it is neither."""
    inside = not package or module == package or module.startswith(f"{package}.")
    rest = module.removeprefix(package).removeprefix(".")
    return rest.partition(".")[0] or None if inside else None


def wrong_way(package, order, imports):
    """Imports of a package's children that do not point to an earlier child."""
    place = {child: at for at, child in enumerate(order)}
    return [
        f"{importer} imports {imported}"
        for importer, others in imports.items()
        for imported in others
        if (own := below(package, importer)) is not None
        and (other := below(package, imported)) is not None
        and own != other
        and place[other] >= place[own]
    ]


@pytest.mark.parametrize("package", ORDER)
def test_every_child_of_a_room_has_its_place(package):
    children = {below(package, name) for name in MODULES if name} - {None}
    assert children == set(ORDER[package].split())


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_to_what_comes_before(package):
    assert wrong_way(package, ORDER[package].split(), IMPORTS) == []


def test_every_package_is_ordered():
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert packages == set(ORDER)


def test_the_checks_can_fail():
    assert wrong_way("goals", ["protocol", "dyck"], {"goals.protocol": {"goals.dyck"}}) == [
        "goals.protocol imports goals.dyck"
    ]
    lazy = "def f():\n    from posteer.cli import sweep\n    return sweep\n"
    assert imports_of(lazy, "core.errors") == {"cli.sweep"}
    assert wrong_way("", ORDER[""].split(), {"core.errors": {"cli.sweep"}}) != []


def circles(imports):
    """Modules that reach themselves."""
    reached = {name: set(others) for name, others in imports.items()}
    changed = True
    while changed:
        changed = False
        for name, others in reached.items():
            more = set().union(others, *(reached.get(other, set()) for other in others))
            changed |= more != others
            reached[name] = more
    return sorted(name for name, others in reached.items() if name in others)


def test_no_module_imports_itself_by_way_of_others():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    assert circles(IMPORTS) == []


def kinds_of_methods_and_models():
    """Names of all classes that solve problems, and of all that are models."""
    trees = [ast.parse(path.read_text()) for path in MODULES.values()]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = {
        node.name
        for node in nodes
        if any(isinstance(part, ast.FunctionDef) and part.name == "solve" for part in node.body)
    }
    models = {"Model"}
    for kinds in (methods, models):
        for _ in range(5):  # subclasses of subclasses
            for node in nodes:
                if any(isinstance(base, ast.Name) and base.id in kinds for base in node.bases):
                    kinds.add(node.name)
    return methods, models


def type_switches(text, kinds):
    """Where a file asks of what class something is, the class being one of these."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass", "type", "hasattr")
        ):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if names & kinds:
                yield ast.unparse(node)


def test_nobody_asks_of_what_class_a_method_or_a_model_is():
    """But the doors through which strangers' objects come in."""
    methods, models = kinds_of_methods_and_models()
    assert {"Auto", "ClassSearch", "PosteriorPrefixTuning", "BeamSearch"} <= methods
    assert {"ExactModel", "TransformerModel", "OneLayerModel", "Conditioned"} <= models
    doors = {"models.registry", "models.function", "models.wrapped.wrapping", "methods.registry"}
    found = {
        name: switches
        for name, path in MODULES.items()
        if name not in doors
        and (switches := list(type_switches(path.read_text(), methods | models)))
    }
    assert found == {}
    assert list(type_switches("isinstance(x, Auto | str)", methods)) == [
        "isinstance(x, Auto | str)"
    ]


def test_abilities_are_declared_not_looked_for():
    asks = {
        name
        for name, path in MODULES.items()
        if re.search(r"hasattr\((model|inner|self\.inner|solver|method)\b", path.read_text())
    }
    assert asks <= {"models.function"}, "where a stranger's object is adapted"


PUBLIC = [name for name in posteer.__all__ if inspect.isfunction(getattr(posteer, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_says_what_it_does_with_an_example_that_runs(name):
    function = getattr(posteer, name)
    examples = doctest.DocTestParser().get_examples(function.__doc__ or "")
    assert len(examples) > 0


def test_help_shows_the_whole_request():
    parameters = inspect.signature(posteer.elicit).parameters
    assert {"length", "horizon", "method", "bank", "allowed", "verify", "device"} <= set(parameters)
    assert parameters["length"].default is inspect.Parameter.empty
    assert parameters["horizon"].default == 4


def codes(code):
    """A code object and all that are written inside it."""
    yield code
    for inner in code.co_consts:
        if inspect.iscode(inner):
            yield from codes(inner)


def undefined(text):
    """Names that a module's code looks up in the module and nobody puts there."""
    code = compile(text, "module", "exec")
    known = {*dir(builtins), "__file__", "__name__", "__doc__", "__path__", "__spec__"}
    known |= {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_NAME"}
    instructions = [i for part in codes(code) for i in dis.get_instructions(part)]
    known |= {i.argval for i in instructions if i.opname == "STORE_GLOBAL"}
    return {i.argval for i in instructions if i.opname == "LOAD_GLOBAL"} - known


def test_names_that_are_used_are_defined():
    """Letters of shapes in annotations keep the linters from looking for them."""
    assert undefined("import os\ndef f(x: 'B m'):\n    return [os, len(x), missing]") == {"missing"}
    folders = (ROOT / name for name in ("src", "tests", "studies", "benchmarks"))
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        assert not undefined(path.read_text()), path


def names_in(document):
    """What the code column of docs/PAPER.md names, and the tests beside it."""
    text = (ROOT / document).read_text()
    code = set(
        re.findall(
            r"`((?:core|families|methods|models|banks|training|paper|evaluation)"
            r"\.[A-Za-z_.]+)`",
            text,
        )
    )
    tests = set(re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", text))
    return code, tests


def test_the_paper_page_names_code_and_tests_that_are_there():
    code, tests = names_in("docs/PAPER.md")
    assert len(code) > 15 and len(tests) > 20
    for name in code:
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            if ".".join(parts[:cut]) in MODULES:
                thing = importlib.import_module(f"posteer.{'.'.join(parts[:cut])}")
                for attribute in parts[cut:]:
                    thing = getattr(thing, attribute)
                break
        else:
            pytest.fail(f"docs/PAPER.md names {name}")
    for file, test in tests:
        text = (ROOT / "tests" / file).read_text()
        assert not test or f"def {test}(" in text, f"{file}::{test}"
