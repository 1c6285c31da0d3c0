"""The site: pages, notebooks, figures and the code's own docstrings, brought together for Sphinx.

    python docs/making/site.py build/site

stages everything under build/site/source and builds build/site/html; warnings are errors. Needs
`pip install 'posteer[docs]'`. Nothing of the site is loaded from anywhere else.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAVIGATION = {
    "Begin": "docs/GLOSSARY.md docs/notebooks/paper.ipynb docs/notebooks/your_model.ipynb "
    "docs/notebooks/sweep.ipynb docs/YOUR_MODEL.md docs/EXPLORER.md gallery.md",
    "Use": "docs/METHODS.md docs/FAMILIES.md docs/CONDITIONS.md docs/SWEEPS.md "
    "docs/FAR.md docs/LANGUAGE_MODELS.md commands.md api.md docs/SCHEMA.md",
    "Evidence": "docs/PAPER.md docs/RESULTS.md docs/TILTS.md docs/CLASSES.md docs/SCALING.md "
    "docs/RELIABILITY.md docs/LOG.md",
    "Code": "docs/ARCHITECTURE.md CONTRIBUTING.md studies/README.md CHANGELOG.md SECURITY.md",
}
"""Pages by heading; those without a folder of ours are made here. README.md comes before all."""
MADE = ("gallery.md", "commands.md", "api.md")
PICTURE = re.compile(
    r'<picture>\s*<source[^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]*)">\s*</picture>'
)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Every page of the repository that the site has, README first."""
    named = [name for names in NAVIGATION.values() for name in names.split() if name not in MADE]
    return [ROOT / name for name in ("README.md", *named)]


def staged(path: Path) -> Path:
    """Where a file of the repository lies among the sources of the site."""
    inside = path.relative_to(ROOT)
    if inside == Path("README.md"):
        return Path("index.md")
    return inside.relative_to("docs") if inside.parts[0] == "docs" else inside


def rewritten(text: str, page: Path) -> str:
    """A page with its links as they are on the site; links to files that are not there are text."""
    known = set(pages())
    here = staged(page).parent

    def link(match: re.Match[str]) -> str:
        label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        file, _, anchor = target.partition("#")
        meant = (page.parent / file).resolve()
        if meant in known or meant.parent == ROOT / "docs" / "figures":
            to = os.path.relpath(staged(meant), here)
            return f"{label}({to}{'#' * bool(anchor)}{anchor})"
        return label[1:-1]

    both = r"![\3](\2){.only-light}" + "\n" + r"![\3](\1){.only-dark}"
    return LINK.sub(link, PICTURE.sub(both, text))


def figures() -> Iterator[tuple[Path, str, Path | None]]:
    """Every picture for a browser: its file, what it shows, and the page that shows it."""
    shown = {}
    for page in pages():
        if page.suffix == ".md":
            text = PICTURE.sub(r"![\3](\2)", page.read_text())
            for caption, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", text):
                shown[(page.parent / target).resolve()] = (caption, page)
    for file in sorted((ROOT / "docs" / "figures").glob("*.*")):
        if file.suffix in (".svg", ".png") and not file.stem.endswith("-dark"):
            caption, page = shown.get(file, (file.stem.replace("-", " "), None))
            yield file, caption, page


def gallery() -> str:
    """All figures on one page."""
    lines = [
        "# Gallery",
        "",
        "Every figure of these pages; each is drawn by a command of its page.",
    ]
    for file, caption, page in figures():
        lines += ["", f"## {file.stem.replace('-', ' ')}", "", f"![{caption}]({staged(file)})", ""]
        where = "" if page is None else f" From [{page.stem}]({staged(page)})."
        lines += [f"{caption.rstrip('.')}.{where}"]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """The command line as its own help says it."""
    from posteer.cli import app

    found = app.generate_docs(output_format="markdown", heading_level=2)
    return f"# Command line\n\n{found}"


CLASSES = {
    "posteer.results": ("Elicitation", "Judgement", "Comparison", "MethodSummary"),
    "posteer.banks": ("LatentBank",),
    "posteer.banks.checks.report": ("CheckSettings", "FilterReport"),
    "posteer.methods.protocol": ("Request",),
    "posteer.core.errors": ("InputError",),
}
"""What functions take and return."""


def api() -> str:
    """The public functions and classes, by their docstrings."""
    import posteer

    held = {name for names in CLASSES.values() for name in names}
    lines = ["# Python", "", "Everything of `import posteer`, and what it takes and returns.", ""]
    lines += ["## Functions", ""]
    for name in posteer.__all__:
        if name not in held:
            lines += ["```{eval-rst}", f".. autofunction:: posteer.{name}", "```", ""]
    lines += ["## Classes", ""]
    for home, names in CLASSES.items():
        for name in names:
            told = [f".. autoclass:: {home}.{name}", "   :members:"]
            lines += ["```{eval-rst}", *told, "```", ""]
    return "\n".join(lines)


def contents() -> str:
    """The navigation, for the end of the first page."""
    parts = []
    for heading, names in NAVIGATION.items():
        own = (name if name in MADE else str(staged(ROOT / name)) for name in names.split())
        parts += ["```{toctree}", ":hidden:", f":caption: {heading}", "", *own, "```", ""]
    return "\n".join(parts)


def stage(out: Path) -> None:
    """Write the sources of the site."""
    shutil.rmtree(out, ignore_errors=True)
    for page in pages():
        where = out / staged(page)
        where.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text()
        where.write_text(rewritten(text, page) if page.suffix == ".md" else text)
    first = out / "index.md"
    first.write_text(f"{first.read_text()}\n{contents()}")
    shutil.copytree(ROOT / "docs" / "figures", out / "figures")
    shutil.copy(Path(__file__).parent / "theme" / "conf.py", out / "conf.py")


def main(out: Path) -> None:
    """Stage and build; what the notebooks read lies where they look for it."""
    source = out / "source"
    stage(source)
    for name, make in (("gallery.md", gallery), ("commands.md", commands), ("api.md", api)):
        (source / name).write_text(make())
    shutil.copytree(ROOT / "docs" / "records", source / "records")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    html = out / "html"
    done = subprocess.run([*build, "-d", str(out / "trees"), str(source), str(html)])
    if done.returncode == 0:
        print(f"{html / 'index.html'}: open it in a browser")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
