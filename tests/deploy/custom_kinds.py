"""The fields of custom resources, as far as deploy/k8s uses them: their definitions are in no package registry. A field that
is misspelt, or not known here, is a complaint: look it up in the definition of the version that is named, then add it."""

ANY = object()  # whatever Kubernetes' own schemas or the rules look at

_METADATA = {"name": ANY, "namespace": ANY, "labels": ANY}
_ISSUER_REF = {"name": ANY, "kind": ANY}
_HPA_TARGET = {"apiVersion": ANY, "kind": ANY, "name": ANY}

FIELDS = {
    # cert-manager 1.16
    ("cert-manager.io/v1", "Issuer"): {"selfSigned": ANY, "ca": {"secretName": ANY}},
    ("cert-manager.io/v1", "Certificate"): {
        "isCA": ANY, "commonName": ANY, "secretName": ANY, "duration": ANY, "renewBefore": ANY,
        "privateKey": {"algorithm": ANY, "size": ANY}, "usages": ANY, "uris": ANY, "issuerRef": _ISSUER_REF},
    # Gateway API Inference Extension 1.6
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "selector": {"matchLabels": ANY}, "targetPorts": [{"number": ANY}],
        "endpointPickerRef": {"name": ANY, "port": {"number": ANY}, "failureMode": ANY}},
    # LeaderWorkerSet 0.9
    ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet"): {
        "slices": ANY,
        "roles": [{"name": ANY, "spec": {
            "replicas": ANY,
            "rolloutStrategy": {"type": ANY, "rollingUpdateConfiguration": {"maxUnavailable": ANY}},
            "leaderWorkerTemplate": {"size": ANY, "workerTemplate": ANY}}}]},
    # KEDA 2.18
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "scaleTargetRef": _HPA_TARGET, "minReplicaCount": ANY, "maxReplicaCount": ANY, "pollingInterval": ANY,
        "cooldownPeriod": ANY, "fallback": {"failureThreshold": ANY, "replicas": ANY, "behavior": ANY},
        "triggers": [{"type": ANY, "metricType": ANY,
                      "metadata": {"serverAddress": ANY, "query": ANY, "threshold": ANY}}]},
    # Prometheus operator 0.80
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "jobLabel": ANY, "selector": {"matchLabels": ANY}, "podTargetLabels": ANY,
        "podMetricsEndpoints": [{"port": ANY, "path": ANY, "interval": ANY}]},
}


def is_custom(document):
    return (document["apiVersion"], document["kind"]) in FIELDS


def unknown_fields(document):
    """The paths of fields of a custom resource that are not in FIELDS."""
    yield from _unknown(document["metadata"], _METADATA, "metadata")
    yield from _unknown(document.get("spec", {}), FIELDS[document["apiVersion"], document["kind"]], "spec")


def _unknown(value, shape, path):
    if shape is ANY:
        return
    if isinstance(shape, list):
        for index, one in enumerate(value):
            yield from _unknown(one, shape[0], f"{path}[{index}]")
        return
    for key, inner in value.items():
        if key not in shape:
            yield f"{path}.{key}"
        else:
            yield from _unknown(inner, shape[key], f"{path}.{key}")
