"""Projects: their quotas, their part in the fair share, and what they use."""

from fastapi import Request

from frenzy_gateway.api.access import ClusterAdmin, Service, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_model
from frenzy_shared.messages.projects import ProjectList, ProjectSettings, ProjectView

router = api_router("projects")


@router.get("/projects")
async def list_projects(service: Service, caller: Viewer) -> ProjectList:
    """Show the projects that have quotas or unfinished jobs, by name."""
    return await service.projects.list(caller)


@router.get("/projects/{project}")
async def get_project(project: str, service: Service, caller: Viewer) -> ProjectView:
    """Show one project: what was decided for it, and what its jobs use."""
    return await service.projects.get(caller, project)


@router.put("/projects/{project}", openapi_extra=json_request(ProjectSettings))
async def put_project(
    project: str, request: Request, service: Service, caller: ClusterAdmin
) -> ProjectView:
    """Replace everything that is decided for a project.

    A limit below what its jobs use stops none of them: the answer's ``notes`` say so.
    """
    return await service.projects.put(caller, project, await read_model(request, ProjectSettings))
