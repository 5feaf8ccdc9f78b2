"""Cosmos: install, update and uninstall packages as Marathon apps.

Each function answers one endpoint: the request's JSON in, the answer's JSON out. Facts: dcos/cosmos, rpc/v1/model and
handler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kit.cosmos import CosmosError, render_app, resolve_options
from kit.package_labels import decode_definition, decode_options
from tf_scheduler.options.load import merge

from .errors import MarathonError
from .marathon import Marathon
from .repositories import Repositories, metadata
from .search import matching
from .supervisor import Snapshot
from .uninstall import Uninstaller, is_uninstalling

Json = Any
Body = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Cosmos:
    """The endpoints of Cosmos."""

    repositories: Repositories
    marathon: Marathon
    uninstaller: Uninstaller

    def describe(self, body: Body) -> Json:
        package, _ = self.repositories.package(_text(body, "packageName"), body.get("packageVersion"))
        return {"package": package}

    def describe_flat(self, body: Body) -> Json:
        """The form for older commands, without lists of upgrades."""
        package, _ = self.repositories.package(_text(body, "packageName"), body.get("packageVersion"))
        if package.get("upgradesFrom") or package.get("downgradesTo"):
            message = "A v4 package cannot be converted into a v2 DescribeResponse"
            raise CosmosError("ConversionFromPackageToV2DescribeResponse", message)
        left_out = ("upgradesFrom", "downgradesTo", "releaseVersion")
        kept = {name: value for name, value in package.items() if name not in left_out}
        return {**kept, "packagingVersion": "3.0"}

    def render(self, body: Body) -> Json:
        return {"marathonJson": self._rendered(body)[1]}

    def install(self, body: Body) -> Json:
        package, app = self._rendered(body)
        try:
            created, _ = self.marathon.create(app)
        except MarathonError as error:
            raise _of_marathon(error) from error
        notes = {"postInstallNotes": package["postInstallNotes"]} if package.get("postInstallNotes") else {}
        cli = {"cli": package["resource"]["cli"]} if package.get("resource", {}).get("cli") else {}
        named = {"packageName": package["name"], "packageVersion": package["version"]}
        return {**named, "appId": created.id, **notes, **cli}

    def install_flat(self, body: Body) -> Json:
        """The form for older commands, which repeat a refused installation with it."""
        installed = self.install(body)
        return {name: installed[name] for name in ("packageName", "packageVersion", "appId")}

    def _rendered(self, body: Body) -> tuple[dict[str, Json], dict[str, Json]]:
        package, source = self.repositories.package(_text(body, "packageName"), body.get("packageVersion"))
        return package, render_app(package, body.get("options"), source.uri, body.get("appId") or None)

    def installed(self, body: Body) -> Json:
        """The content of `dcos package list`."""
        packages = []
        for shown in self._apps(body.get("packageName"), body.get("appId")):
            package = decode_definition(shown.app.definition["labels"]["DCOS_PACKAGE_DEFINITION"])
            resource = {key: value for key, value in package.get("resource", {}).items() if key != "cli"}
            about = {"packageDefinition": metadata(package), "resourceDefinition": resource}
            packages.append({"appId": shown.app.id, "packageInformation": about})
        return {"packages": packages}

    def versions(self, body: Body) -> Json:
        name = _text(body, "packageName")
        found = self.repositories.packages(name)
        if not found:
            raise CosmosError("PackageNotFound", f"Package [{name}] not found", {"packageName": name})
        return {"results": {package["version"]: str(package["releaseVersion"]) for package, _ in reversed(found)}}

    def search(self, body: Body) -> Json:
        packages = (package for package, _ in self.repositories.packages())
        return {"packages": matching(packages, body.get("query") or "")}

    def uninstall(self, body: Body) -> Json:
        name, wanted = _text(body, "packageName"), body.get("appId")
        apps = list(self._apps(name, wanted))
        if not apps:
            kind = "PackageNotInstalled" if wanted is None else "UninstallNonExistentAppForPackage"
            with_id = "" if wanted is None else f" with id [{wanted}]"
            raise CosmosError(kind, f"Package [{name}]{with_id} is not installed", {"packageName": name})
        if len(apps) > 1 and not body.get("all"):
            ids = [shown.app.id for shown in apps]
            message = f"Multiple apps named [{name}] are installed: [{', '.join(ids)}]"
            raise CosmosError("AmbiguousAppId", message, {"packageName": name, "appIds": ids})
        return {"results": [self._uninstall(shown) for shown in apps]}

    def _uninstall(self, shown: Snapshot) -> dict[str, Json]:
        labels = shown.app.definition["labels"]
        try:
            self.uninstaller.start(shown.app)
        except MarathonError as error:
            raise _of_marathon(error) from error
        notes = decode_definition(labels["DCOS_PACKAGE_DEFINITION"]).get("postUninstallNotes")
        named = {"packageName": labels["DCOS_PACKAGE_NAME"], "packageVersion": labels["DCOS_PACKAGE_VERSION"]}
        return {**named, "appId": shown.app.id, **({"postUninstallNotes": notes} if notes else {})}

    def repository_list(self, _body: Body) -> Json:
        return {"repositories": [asdict(repository) for repository in self.repositories.listed()]}

    def repository_add(self, body: Body) -> Json:
        index = body.get("index")
        listed = self.repositories.add(
            _text(body, "name"), _text(body, "uri"), None if index is None else _number(index)
        )
        return {"repositories": [asdict(repository) for repository in listed]}

    def repository_delete(self, body: Body) -> Json:
        listed = self.repositories.delete(body.get("name"), body.get("uri"))
        return {"repositories": [asdict(repository) for repository in listed]}

    def service_describe(self, body: Body) -> Json:
        labels = self._service(_text(body, "appId")).app.definition["labels"]
        package, given = (
            decode_definition(labels["DCOS_PACKAGE_DEFINITION"]),
            decode_options(labels["DCOS_PACKAGE_OPTIONS"]),
        )
        return {
            "package": package,
            "upgradesTo": [],
            "downgradesTo": [],
            "resolvedOptions": resolve_options(package, given),
            "userProvidedOptions": given,
        }

    def service_update(self, body: Body) -> Json:
        """Merge or replace the options of an app. Versions change in Enterprise only.

        Raise CosmosError 409 for a service that is being uninstalled: without SDK_UNINSTALL it would be deployed again.
        """
        shown = self._service(_text(body, "appId"))
        if is_uninstalling(shown.app):
            name = shown.app.id.strip("/")
            raise _conflict(f"the service '{name}' is being uninstalled; install it again once it is gone")
        labels = shown.app.definition["labels"]
        package = decode_definition(labels["DCOS_PACKAGE_DEFINITION"])
        asked = body.get("packageVersion")
        if asked not in (None, package["version"]):
            about = {"requested": asked, "actual": package["version"]}
            raise CosmosError(
                "VersionUpgradeNotSupportedInOpen", "Version Upgrades are an Enterprise DC/OS feature only", about
            )
        given = body.get("options") or {}
        options = given if body.get("replace") else merge(decode_options(labels["DCOS_PACKAGE_OPTIONS"]), given)
        app = render_app(package, options, labels["DCOS_PACKAGE_SOURCE"])
        new_id = "/" + str(app["id"]).strip("/")
        if new_id != shown.app.id:
            message = f"The new appId {new_id} must be equal to the old appId {shown.app.id}"
            raise CosmosError("AppIdChanged", message, {"newAppId": new_id, "oldAppId": shown.app.id})
        try:
            _, deployment = self.marathon.replace(shown.app.id, app, instead_of=shown.app)
        except MarathonError as error:
            raise _conflict(error.message) if error.http_status == 409 else _of_marathon(error) from error
        found = {"package": package, "resolvedOptions": resolve_options(package, options)}
        return {**found, "marathonDeploymentId": deployment}

    def _service(self, app_id: str) -> Snapshot:
        try:
            shown = self.marathon.snapshot(app_id)
        except MarathonError as error:
            message = f"Unable to locate service with marathon appId: '{app_id}'"
            raise CosmosError("MarathonAppNotFound", message, {"appId": app_id}) from error
        if "DCOS_PACKAGE_OPTIONS" not in shown.app.definition["labels"]:
            raise CosmosError("OptionsNotStored", "The options of the current service were not stored")
        return shown

    def _apps(self, name: str | None, app_id: str | None) -> Iterator[Snapshot]:
        for shown in self.marathon.snapshots().values():
            labels = shown.app.definition["labels"]
            wanted = app_id is None or shown.app.id == "/" + app_id.strip("/")
            if "DCOS_PACKAGE_DEFINITION" in labels and name in (None, labels.get("DCOS_PACKAGE_NAME")) and wanted:
                yield shown


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        about = {"type": "decode", "reason": "String", "path": f".{name}"}
        raise CosmosError("json_error", f"JSON decode error: {name} must be a text", about)
    return value


def _number(value: Json) -> int:
    """Parse a number that the dcos command sends as a text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        about = {"type": "decode", "reason": "Int", "path": ".index"}
        raise CosmosError("json_error", "JSON decode error: index must be a number", about) from None


def _conflict(message: str) -> CosmosError:
    return CosmosError("MarathonBadResponse", message, http_status=409)


def _of_marathon(error: MarathonError) -> CosmosError:
    if error.http_status == 409:
        return CosmosError("PackageAlreadyInstalled", "Package is already installed", http_status=409)
    details = [{"path": problem.path, "errors": [problem.message]} for problem in error.problems]
    return CosmosError("MarathonBadResponse", error.message, {"errors": details})
