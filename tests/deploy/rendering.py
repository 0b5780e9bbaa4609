"""Renders the kustomizations of deploy/k8s with kubectl."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy" / "k8s"

# A component is rendered over the base, unless it changes what only an overlay has.
COMPONENT_BASES = {"dra": "overlays/gpu"}
# What a user may combine, beyond each part alone.
COMBINATIONS = {
    "tls+model-init+disaggregatedset": ("overlays/tls", ["model-init", "disaggregatedset"]),
    "gpu+dra+networkpolicy+keda": ("overlays/gpu", ["dra", "networkpolicy", "keda"]),
    "ha+podmonitor+hpa+inferencepool+llm-d-labels":
        ("overlays/ha", ["podmonitor", "hpa", "inferencepool", "llm-d-labels"]),
}


class Unavailable(Exception):
    """A tool that rendering needs is not on this machine."""


def variants():
    """Name -> (folder below deploy/k8s, components) of everything that is rendered."""
    found = {"base": ("base", [])}
    for overlay in sorted((K8S / "overlays").iterdir()):
        found[overlay.name] = (f"overlays/{overlay.name}", [])
    for component in sorted((K8S / "components").iterdir()):
        found[component.name] = (COMPONENT_BASES.get(component.name, "base"), [component.name])
    return found | COMBINATIONS


def render(base, components):
    """The documents of `base` with `components`, in a list. RuntimeError has kubectl's message."""
    if shutil.which("kubectl") is None:
        raise Unavailable("kubectl is not here, so that no manifest can be rendered")
    # kustomize takes relative paths only.
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.relpath((K8S / name).resolve(), pathlib.Path(folder).resolve())
        text = {"resources": [path(base)], "components": [path(f"components/{name}") for name in components]}
        (pathlib.Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(text))
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "kubectl failed")
    return [document for document in yaml.safe_load_all(done.stdout) if document]
