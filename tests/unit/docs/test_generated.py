"""Generated documentation equals what the code says."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIVENESS = ROOT / "services" / "scheduler" / "frenzy_scheduler" / "core" / "liveness.py"


def load_generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_state_diagram_is_the_transition_table():
    generate = load_generator()
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert generate.BEGIN in page
    assert generate.with_diagram(page) == page, "run: python docs/generate.py"


@pytest.mark.parametrize("page", ["settings", "events", "job"])
def test_reference_pages_are_what_the_code_says(page):
    generate = load_generator()
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert text == getattr(generate, f"{page}_page")(), "run: python docs/generate.py"


def test_local_links_of_the_documentation_exist():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in links_of(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken


def links_of(text):
    import re

    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def test_every_node_event_in_the_code_is_on_the_page():
    import re

    told = set()
    for path in (ROOT / "services").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        told |= set(re.findall(r'node_event\([\w.]+, "(\w+)"', text))
    told |= set(re.findall(r'^    (?:SUSPECT|LOST) = "(\w+)"', LIVENESS.read_text(), re.MULTILINE))
    assert told >= {"joined", "suspect", "lost"}
    assert told <= set(load_generator().NODE_EVENTS)
