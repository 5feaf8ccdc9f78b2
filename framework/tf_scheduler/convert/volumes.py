"""What a TFJob's pods mount: folders of the host become volumes, the rest is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .mapping import Deed, Put, Say, Spot
from .shape import each, flag, inside, needed

#: Kind of a volume -> what to do instead.
_INSTEAD = {
    "emptyDir": "tasks have a working directory",
    "secret": "say it with secrets",
    "configMap": "pack the files in the archive of service.job_url",
    "nfs": "mount the share on the agents and name its folder in volumes",
}
_SHARED = "mount it on the agents and name its folder in volumes, or read s3, gs or hdfs"
#: Where `with_volumes` puts the volume of a mount: no name of Kubernetes has a space.
_VOLUME = "its volume"


def with_volumes(box: Mapping[str, Any], volumes: Any) -> Mapping[str, Any]:
    """The container with, in each of its mounts, the pod's volume that is mounted there."""
    mounts = box.get("volumeMounts")
    if not isinstance(mounts, list) or not isinstance(volumes, list):
        return box
    named = {volume["name"]: volume for volume in volumes if isinstance(volume, Mapping) and _has_name(volume)}
    found = [_joined(mount, named) if isinstance(mount, Mapping) else mount for mount in mounts]
    return {**box, "volumeMounts": found}


def _has_name(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("name"), str)


def _joined(mount: Mapping[str, Any], named: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    known = _has_name(mount) and mount["name"] in named
    return {**mount, _VOLUME: named[mount["name"]]} if known else mount


def take_mounts(value: Any, spot: Spot) -> Iterator[Deed]:
    """Of `volumeMounts`."""
    yield from each(value, spot, _take_mount)


def _take_mount(mount: Mapping[str, Any], spot: Spot) -> Iterator[Deed]:
    volume = mount.get(_VOLUME) or {}
    if "hostPath" in volume:
        folder = inside(volume, "hostPath", "path")
        if not isinstance(folder, str):
            raise ValueError(f"the volume {volume['name']} has no hostPath.path")
        yield Put(("volumes",), [_record(mount, folder, spot.section)])
    else:
        yield Say(spot.path, f"was left out: {_reason(volume)}")


def _reason(volume: Mapping[str, Any]) -> str:
    kind = next((name for name in volume if name != "name"), "")
    return f"{kind}: {_INSTEAD.get(kind, _SHARED)}" if kind else "the pod has no volume of that name"


def _record(mount: Mapping[str, Any], folder: str, section: str) -> dict[str, str]:
    inner = needed(mount, "subPath") if mount.get("subPath") else ""
    return {
        "host_path": f"{folder.rstrip('/')}/{inner}" if inner else folder,
        "container_path": needed(mount, "mountPath"),
        "mode": "RO" if flag(mount.get("readOnly") or False) else "RW",
        "jobs": section,
    }
