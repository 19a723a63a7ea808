"""A stand-in for the nodes of a Kubernetes cluster: it runs Spark's executors as processes of this machine, as root.

Scheduler, kubelet and image in one. A pod gets an address of its own (loopback), folders of its own instead of /tmp and
/opt, its config maps and secrets as files, its own environment and no other, and the command of Spark's entrypoint.sh.
"""

import base64
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from dies_with_parent import dying_with_this_process

Document = dict[str, Any]
MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION = "SPARK_JAVA_OPT_"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
# The pod's folders lie in /tmp, too, and would be hidden first.
OWN_DISK = 'mount --bind "$1/opt" /opt && mount --bind "$1/tmp" /tmp && cd /tmp && shift && exec "$@"'


class Kubelet(threading.Thread):
    """Runs the pods of a namespace while `asked` asks its API server: method, path below the namespace, document."""

    def __init__(self, asked: Callable[..., Document], spark_home: Path, home: Path) -> None:
        super().__init__(daemon=True)
        self.asked = asked
        self.spark_home = spark_home
        self.home = home
        self.started = 0
        self.stopped = threading.Event()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        """The executors' processes, by their pods' ids."""

    def run(self) -> None:
        """Keep processes as their pods are."""
        while not self.stopped.wait(0.2):
            # The API server may be away, and Spark makes a pod's config map after the pod: both are asked for again.
            with suppress(requests.RequestException):
                pods = self.asked("GET", "pods")["items"]
                for uid in self.running.keys() - {pod["metadata"]["uid"] for pod in pods}:
                    self.running.pop(uid).kill()
                for pod in pods:
                    self._keep(pod)

    def _keep(self, pod: Document) -> None:
        process = self.running.get(pod["metadata"]["uid"])
        code = process.poll() if process else None
        if "deletionTimestamp" in pod["metadata"]:
            if process and code is None:
                process.terminate()
            else:
                self._ask("DELETE", pod, document={"gracePeriodSeconds": 0})
        elif pod["status"]["phase"] in {"Succeeded", "Failed"}:
            return
        elif process is None:
            self._start(pod)
        elif code is not None:
            state = {"terminated": {"exitCode": code % 256, "reason": "Error"}}
            self._report(pod, "Failed" if code else "Succeeded", state)

    def _start(self, pod: Document) -> None:
        name = pod["metadata"]["name"]
        folder = self.home / name
        for each in ("opt", "tmp"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        self._mount(pod, folder)
        target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "here"}}
        self._ask("POST", pod, "/binding", target)
        self.started += 1
        address = f"127.77.0.{self.started}"
        environment = self._environment(pod, {"status.podIP": address, "metadata.name": name})
        own = ["unshare", "--mount", "sh", "-c", OWN_DISK, "sh", str(folder), *self._command(environment)]
        with (folder / "log").open("wb") as log:
            self.running[pod["metadata"]["uid"]] = subprocess.Popen(
                dying_with_this_process(own), env=environment, stdout=log, stderr=log
            )
        self._report(pod, "Running", {"running": {}}, podIP=address, podIPs=[{"ip": address}])

    def _mount(self, pod: Document, folder: Path) -> None:
        """Write what volumes of config maps and secrets hold; others are the pod's own disk."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            volume, place = volumes[mount["name"]], folder / mount["mountPath"].lstrip("/")
            files: dict[str, bytes] = {}
            if "configMap" in volume:
                data = self.asked("GET", f"configmaps/{volume['configMap']['name']}")["data"]
                files = {name: text.encode() for name, text in data.items()}
            elif "secret" in volume:
                data = self.asked("GET", f"secrets/{volume['secret']['secretName']}")["data"]
                files = {name: base64.b64decode(text) for name, text in data.items()}
            for name, content in files.items():
                place.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(content)

    def _environment(self, pod: Document, fields: dict[str, str]) -> dict[str, str]:
        named = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in each
            else each.get("value", "")
            for each in pod["spec"]["containers"][0]["env"]
        }
        own_disk = "/tmp"  # noqa: S108 - the pod's
        return named | {"PATH": os.environ["PATH"], "SPARK_HOME": str(self.spark_home), "SPARK_LOCAL_DIRS": own_disk}

    def _command(self, environment: dict[str, str]) -> list[str]:
        """Return what entrypoint.sh of Spark's image makes of an executor's environment."""
        given = [name for name in environment if name.startswith(JAVA_OPTION)]
        options = [environment[name] for name in sorted(given, key=lambda name: int(name.removeprefix(JAVA_OPTION)))]
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        classes = f"{environment['SPARK_CONF_DIR']}:{self.spark_home}/jars/*"
        arguments = [word for option, name in ARGUMENTS.items() for word in (option, environment[name])]
        return ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, MAIN, *arguments]

    def _report(self, pod: Document, phase: str, state: Document, **more: object) -> None:
        [container] = pod["spec"]["containers"]
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running"}
        status |= {"restartCount": 0, "state": state}
        self._ask("PATCH", pod, "/status", {"status": {"phase": phase, "containerStatuses": [status], **more}})

    def _ask(self, method: str, pod: Document, below: str = "", document: Document | None = None) -> None:
        self.asked(method, f"pods/{pod['metadata']['name']}{below}", document)
