"""Read the quotas of a simulation: a mapping from projects to what the API takes for them."""

from pathlib import Path

from pydantic import ValidationError

from frenzy_shared.domain.ids import ProjectName, is_name
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.projects import ProjectSettings
from frenzy_shared.messages.wording import invalid_spec
from frenzy_shared.messages.yaml import load_yaml
from frenzy_simulator.errors import InvalidScenario


def load_quotas(path: Path) -> tuple[Project, ...]:
    """Read a file of quotas, YAML or JSON.

    Raises:
        InvalidScenario: naming the project and the field that is wrong.
    """
    try:
        document = load_yaml(path.read_text(encoding="utf-8"), str(path))
        return tuple(_project(name, settings) for name, settings in document.items())
    except OSError as error:
        raise InvalidScenario(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidScenario(f"{path} is not UTF-8 text: {error.reason}") from error
    except InvalidSpec as error:
        raise InvalidScenario(error.message, suggestions=error.suggestions) from error


def _project(name: str, settings: object) -> Project:
    if not is_name(name):
        raise InvalidScenario(f"project {name[:40]!r}: use a-z, 0-9 and '-' only")
    try:
        return ProjectSettings.model_validate(settings, strict=True).project(ProjectName(name))
    except ValidationError as error:
        problem = invalid_spec(error, ProjectSettings)
        raise InvalidScenario(f"project {name}: {problem.message}") from error
