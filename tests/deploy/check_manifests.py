#!/usr/bin/env python3
"""Renders every kustomization of deploy/k8s and checks what comes out.

  check_manifests.py --tandem build/release/bin/tandem

Without kubectl or PyYAML (python3-yaml) it says so and exits with 77. With kubernetes-validate from PyPI it also holds
Kubernetes' own kinds against their schemas (make test-deploy).
"""
import argparse
import sys

try:
    import yaml
except ImportError:
    print("left out: PyYAML is not here (Debian: python3-yaml)")
    sys.exit(77)
import custom_kinds
import program_flags
import rendering
import rules

KUBERNETES = "1.34"  # the first version that has all kinds of deploy/k8s


def schema_problems(document):
    try:
        import kubernetes_validate
    except ImportError:
        return []
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(str(part) for part in error.path)}: {error.message}"]
    return []


def form_problems(documents):
    """Fields that no schema has."""
    for document in documents:
        where = f"{document['kind']} {document['metadata']['name']}"
        if custom_kinds.is_custom(document):
            problems = [f"{path} is no known field" for path in custom_kinds.unknown_fields(document)]
        else:
            problems = schema_problems(document)
        yield from (f"{where}: {problem}" for problem in problems)


def problems_of(documents, known_flags, known_metrics):
    yield from form_problems(documents)
    for rule in rules.PLAIN_RULES:
        yield from rule(documents)
    yield from rules.flags(documents, known_flags)
    yield from rules.metrics(documents, known_metrics)


def adapter_problems(known_metrics):
    """The rules of prometheus-adapter make each metric that the autoscalers ask for, of metrics that exist."""
    folder = rendering.K8S / "components" / "hpa"
    rules_of_adapter = yaml.safe_load((folder / "prometheus_adapter_values.yaml").read_text())["rules"]["external"]
    for rule in rules_of_adapter:
        yield from rules.unknown_metrics(f"rule {rule['name']['as']}", rule["metricsQuery"], known_metrics)
    made = {rule["name"]["as"] for rule in rules_of_adapter}
    for scaler in yaml.safe_load_all((folder / "autoscalers.yaml").read_text()):
        for metric in scaler["spec"]["metrics"]:
            name = metric["external"]["metric"]["name"]
            if name not in made:
                yield f"HorizontalPodAutoscaler {scaler['metadata']['name']} asks for {name}, which no rule makes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True, help="the built program, whose --help knows the flags")
    known_flags = program_flags.known_flags(parser.parse_args().tandem)
    known_metrics = "".join(path.read_text() for path in (rendering.ROOT / "server" / "admin").glob("*.cc"))
    problems = [f"components/hpa: {problem}" for problem in adapter_problems(known_metrics)]
    try:
        for name, (base, components) in rendering.variants().items():
            documents = rendering.render(base, components)
            found = list(problems_of(documents, known_flags, known_metrics))
            problems += [f"{name}: {problem}" for problem in found]
            print(f"{'FAIL' if found else 'ok  '} {name}: {len(documents)} documents")
    except rendering.Unavailable as reason:
        print(f"left out: {reason}")
        return 77
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
