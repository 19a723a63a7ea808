"""Build etcd and kube-apiserver from Go's modules, as `build_kubernetes.py DIRECTORY`; a quarter of an hour with Go.

Nothing is built where both are in the folder that KUBEBUILDER_ASSETS names, or on the PATH.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "1.34.3"
MODULES = f"require (\n\tk8s.io/kubernetes v{VERSION}\n\tgo.etcd.io/etcd/server/v3 v3.6.4\n)\n"
NAMED = f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"
PROGRAMS = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}


def found(directory: Path) -> dict[str, str]:
    """Return the programs that there are."""
    path = os.pathsep.join([os.environ.get("KUBEBUILDER_ASSETS", ""), str(directory), os.environ["PATH"]])
    paths = {name: shutil.which(name, path=path) for name in PROGRAMS}
    return {name: path for name, path in paths.items() if path}


def main() -> None:
    """Build what is missing; SystemExit says what it takes."""
    directory = Path(sys.argv[1]).resolve()
    if not (missing := PROGRAMS.keys() - found(directory).keys()):
        return
    if shutil.which("go") is None:
        sys.exit(
            f"expected {' and '.join(sorted(missing))} in the folder KUBEBUILDER_ASSETS or on the PATH, or Go 1.24 or "
            "later to build them, found none of these. Unpack envtest's archive there, or install Go."
        )
    directory.mkdir(exist_ok=True)

    def go(*arguments: str) -> str:
        environment = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false"}
        done = subprocess.run(
            ["nice", "go", *arguments], cwd=directory, env=environment, check=True, text=True, stdout=subprocess.PIPE
        )
        return done.stdout

    (directory / "go.mod").write_text("module trial\n\ngo 1.24.0\n")
    module = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"))
    # Its parts lie beside it there, which counts for its own builds alone; each is published with that version, too.
    parts = [
        each["Old"]["Path"]
        for each in json.loads(go("mod", "edit", "-json", module["GoMod"]))["Replace"]
        if each["New"]["Path"].startswith("./staging/")
    ]
    replaced = "".join(f"replace {part} => {part} v{VERSION.replace('1', '0', 1)}\n" for part in parts)
    (directory / "go.mod").write_text(f"module trial\n\ngo 1.24.0\n\n{MODULES}\n{replaced}")
    for name in sorted(missing):
        print(f"Building {name} of Kubernetes {VERSION}", flush=True)
        go("build", "-p", "1", "-trimpath", "-ldflags", NAMED, "-o", name, PROGRAMS[name])


if __name__ == "__main__":
    main()
