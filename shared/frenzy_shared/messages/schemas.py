"""JSON Schemas of everything on the wire. ``python -m frenzy_shared.messages.schemas [folder]``."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from frenzy_shared.messages import http
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.messages.estimate import EstimateReply, EstimateRequest, EstimateView
from frenzy_shared.messages.projects import ProjectList, ProjectSettings, ProjectView
from frenzy_shared.messages.secrets import SecretList, SecretView
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import REGISTRY

DEFAULT_FOLDER: Final = Path("docs/reference/schemas")

MODELS: Final[dict[str, type[Wire]]] = {
    **REGISTRY,
    "cloud_event": CloudEvent,
    "job_spec": JobSpec,
    "job_view": http.JobView,
    "job_list": http.JobList,
    "timeline": http.Timeline,
    "node_list": http.NodeList,
    "explain_view": http.ExplainView,
    "queue_view": http.QueueView,
    "plan_result": http.PlanResult,
    "estimate_request": EstimateRequest,
    "estimate_reply": EstimateReply,
    "estimate_view": EstimateView,
    "array_view": http.ArrayView,
    "project_settings": ProjectSettings,
    "project_view": ProjectView,
    "project_list": ProjectList,
    "secret_view": SecretView,
    "secret_list": SecretList,
    "blob_view": http.BlobView,
    "token_request": http.TokenRequest,
    "token_view": http.TokenView,
    "version_view": http.VersionView,
    "problem": http.Problem,
}

# Unknown keys are an error in what clients write.
_CLOSED: Final = frozenset({"job_spec", "project_settings", "estimate_request", "token_request"})


def schema(name: str) -> dict[str, Any]:
    """Return one schema. What Frenzy writes may gain fields, so those schemas leave room."""
    body = MODELS[name].model_json_schema()
    if name not in _CLOSED:
        body = _opened(body)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:frenzy:v1:{name}",
        **body,
    }


def write(folder: Path) -> None:
    """Write every schema as ``<folder>/<name>.json`` and remove those of messages that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        if old.stem not in MODELS:
            old.unlink()
    for name in MODELS:
        (folder / f"{name}.json").write_text(render(name), encoding="utf-8")


def render(name: str) -> str:
    """Return one schema as the text of its file."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def _opened(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {
            key: _opened(item)
            for key, item in value.items()
            if (key, item) != ("additionalProperties", False)
        }
    return [_opened(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER)
