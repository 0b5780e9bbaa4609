"""Rendered documents as the rules look at them: workloads with their pods, services, references."""
import dataclasses

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")


@dataclasses.dataclass
class Workload:
    """A pod template and what makes pods of it."""
    where: str  # for messages
    kind: str
    labels: dict
    spec: dict  # of the pod
    selector: dict
    service_name: str | None = None

    def containers(self):
        return self.spec.get("initContainers", []) + self.spec["containers"]

    def main(self):
        return next(one for one in self.spec["containers"] if one["name"] == "tandem")

    def ports(self):
        """Name -> number of all ports of the main container."""
        return {port["name"]: port["containerPort"] for port in self.main().get("ports", [])}

    def flags(self):
        """Flag -> value of the main container, the command under ""."""
        found = {}
        for argument in self.main()["args"]:
            name, _, value = argument.partition("=")
            found[name if argument.startswith("-") else ""] = value if argument.startswith("-") else argument
        return found


def _of_template(where, kind, template, selector, service_name=None):
    return Workload(where=where, kind=kind, labels=template["metadata"].get("labels", {}), spec=template["spec"],
                    selector=selector, service_name=service_name)


def workloads(documents):
    found = []
    for document in documents:
        where = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] in WORKLOADS:
            spec = document["spec"]
            found.append(_of_template(where, document["kind"], spec["template"], spec["selector"]["matchLabels"],
                                      spec.get("serviceName")))
        if document["kind"] == "DisaggregatedSet":
            for role in document["spec"]["roles"]:
                template = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
                found.append(_of_template(f"{where} role {role['name']}", document["kind"], template, {}))
    return found


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def names(documents, kind):
    return {document["metadata"]["name"] for document in of_kind(documents, kind)}


def matches(selector, labels):
    """Whether a label selector, or a service's plain map, takes pods with `labels`."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return all(labels.get(key) == value for key, value in selector.items())
    if not matches(selector.get("matchLabels", {}), labels):
        return False
    for one in selector.get("matchExpressions", []):
        if one["operator"] != "In":
            raise ValueError(f"matchExpressions with {one['operator']} are not understood by this check")
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True
