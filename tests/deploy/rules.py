"""What must hold in rendered manifests. Each rule takes the documents and returns its complaints."""
import configparser
import re

from manifests import matches, names, of_kind, workloads

PORT_FLAGS = {"--port": "grpc", "--http-port": "http", "--metrics-port": "metrics", "--data-port": "kv"}
PROBES = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def references(documents):
    """Every ConfigMap, Secret, claim and account that a pod names is there."""
    secrets = names(documents, "Secret") | {one["spec"]["secretName"] for one in of_kind(documents, "Certificate")}
    maps, claims = names(documents, "ConfigMap"), names(documents, "PersistentVolumeClaim")
    accounts, templates = names(documents, "ServiceAccount"), names(documents, "ResourceClaimTemplate")
    for pod in workloads(documents):
        wanted = [(pod.spec.get("serviceAccountName"), accounts, "ServiceAccount")]
        for volume in pod.spec.get("volumes", []):
            wanted.append((volume.get("configMap", {}).get("name"), maps, "ConfigMap"))
            wanted.append((volume.get("secret", {}).get("secretName"), secrets, "Secret"))
            wanted.append((volume.get("persistentVolumeClaim", {}).get("claimName"), claims, "PersistentVolumeClaim"))
        for claim in pod.spec.get("resourceClaims", []):
            wanted.append((claim["resourceClaimTemplateName"], templates, "ResourceClaimTemplate"))
        for container in pod.containers():
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {}).get("configMapKeyRef", {})
                wanted.append((source.get("name"), maps, "ConfigMap"))
        for name, there, kind in wanted:
            if name is not None and name not in there:
                yield f"{pod.where} names {kind} {name}, which is not there"


def mounts(documents):
    """Every mount has its volume, and every volume is mounted."""
    for pod in workloads(documents):
        volumes = {volume["name"] for volume in pod.spec.get("volumes", [])}
        mounted = {mount["name"] for one in pod.containers() for mount in one.get("volumeMounts", [])}
        for name in sorted(mounted ^ volumes):
            yield f"{pod.where}: volume {name} is {'mounted but not there' if name in mounted else 'not mounted'}"


def selectors(documents):
    """What selects pods selects some, by labels that they have, and by ports that they have."""
    pods = workloads(documents)
    for pod in pods:
        if not matches(pod.selector, pod.labels):
            yield f"{pod.where} does not select its own pods"
    for kind, path in [("Service", "selector"), ("PodDisruptionBudget", "selector"), ("PodMonitor", "selector"),
                       ("InferencePool", "selector"), ("NetworkPolicy", "podSelector")]:
        for one in of_kind(documents, kind):
            where = f"{kind} {one['metadata']['name']}"
            chosen = [pod for pod in pods if matches(one["spec"][path], pod.labels)]
            if not chosen:
                yield f"{where} selects no pod"
            for pod in chosen:
                yield from _ports_missing(where, kind, one["spec"], pod)


def _ports_missing(where, kind, spec, pod):
    if kind == "Service":
        ports = [port["targetPort"] for port in spec["ports"]]
    elif kind == "PodMonitor":
        ports = [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]]
    elif kind == "InferencePool":
        ports = [port["number"] for port in spec["targetPorts"]]
    elif kind == "NetworkPolicy":
        ports = [port["port"] for rule in spec.get("ingress", []) for port in rule.get("ports", [])]
    else:
        ports = []
    for port in ports:
        if port not in pod.ports() and port not in pod.ports().values():
            yield f"{where} wants port {port}, which {pod.where} does not have"


def egress(documents):
    """What a network policy lets pods reach is a port of the pods at the other end."""
    pods = workloads(documents)
    for policy in of_kind(documents, "NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            selected = [to["podSelector"] for to in rule.get("to", []) if "podSelector" in to]
            ends = [pod for pod in pods for selector in selected if matches(selector, pod.labels)]
            for port in rule.get("ports", []):
                for pod in ends:
                    if port["port"] not in pod.ports().values():
                        yield f"NetworkPolicy {policy['metadata']['name']} opens {port['port']}, not a port of {pod.where}"


def services(documents):
    """Stateful sets have headless services, and routers that workers look up are found before they are ready."""
    headless = {one["metadata"]["name"]: one for one in of_kind(documents, "Service")
                if one["spec"].get("clusterIP") == "None"}
    for pod in workloads(documents):
        if pod.kind == "StatefulSet" and pod.service_name not in headless:
            yield f"{pod.where}: serviceName {pod.service_name} is no headless service"
        router = pod.flags().get("--router")
        if router is None:
            continue
        followed = re.fullmatch(r"dns:([a-z0-9-]+):(\d+)", router)
        if followed is None or followed.group(1) not in headless:
            yield f"{pod.where}: --router={router} is no dns:NAME:PORT of a headless service"
            continue
        spec = headless[followed.group(1)]["spec"]
        if not spec.get("publishNotReadyAddresses"):
            yield f"Service {followed.group(1)} hides routers that are not ready yet, which workers make ready"
        if int(followed.group(2)) not in [port["port"] for port in spec["ports"]]:
            yield f"{pod.where}: --router={router} is no port of that service"


def probes(documents):
    for pod in workloads(documents):
        for probe, path in PROBES.items():
            get = pod.main().get(probe, {}).get("httpGet")
            if get is None:
                yield f"{pod.where} has no {probe}"
            elif get["path"] != path or get["port"] != "metrics":
                yield f"{pod.where}: {probe} asks {get['path']} of {get['port']}, not {path} of metrics"
        if "metrics" not in pod.ports():
            yield f"{pod.where} has no port metrics"


def ports(documents):
    """A port that a flag opens is declared with the same number, and nothing else is."""
    for pod in workloads(documents):
        opened = {PORT_FLAGS[flag]: int(value) for flag, value in pod.flags().items() if flag in PORT_FLAGS}
        if opened != pod.ports():
            yield f"{pod.where} opens {opened}, and declares {pod.ports()}"


def security(documents):
    for pod in workloads(documents):
        spec = pod.spec
        context = spec.get("securityContext", {})
        if not (context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0):
            yield f"{pod.where} may run as root"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{pod.where} has no seccomp profile"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.where} gets a token of the API server"
        for danger in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(danger):
                yield f"{pod.where} has {danger}"
        if any("hostPath" in volume for volume in spec.get("volumes", [])):
            yield f"{pod.where} mounts a folder of its node"
        for container in pod.containers():
            yield from _container_security(f"{pod.where} container {container['name']}", container)
    for account in of_kind(documents, "ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount {account['metadata']['name']} gives tokens away"
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
        for one in of_kind(documents, kind):
            yield f"{kind} {one['metadata']['name']} gives rights that nothing needs"


def _container_security(where, container):
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield f"{where} may gain privileges"
    if context.get("runAsUser", 1) == 0:
        yield f"{where} runs as root"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{where} may write to its root file system"
    if context.get("capabilities", {}) != {"drop": ["ALL"]}:
        yield f"{where} keeps capabilities"
    for what in ("requests", "limits"):
        for resource in ("cpu", "memory"):
            if resource not in container.get("resources", {}).get(what, {}):
                yield f"{where} has no {resource} in its {what}"


def draining(documents):
    """What a pod is given to end is more than what it takes to drain."""
    for pod in workloads(documents):
        command = pod.main().get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        needed = int(command[1]) + int(pod.flags()["--drain-seconds"])
        if spec_grace(pod) <= needed:
            yield f"{pod.where} is killed after {spec_grace(pod)} s, and takes {needed} s to drain"


def spec_grace(pod):
    return pod.spec.get("terminationGracePeriodSeconds", 30)


def spreading(documents):
    """Workloads spread over nodes, by a constraint that counts their own pods, and are covered by a budget."""
    budgets = of_kind(documents, "PodDisruptionBudget")
    for pod in workloads(documents):
        constraints = pod.spec.get("topologySpreadConstraints", [])
        if not any(one["topologyKey"] == "kubernetes.io/hostname" for one in constraints):
            yield f"{pod.where} does not spread over nodes"
        for one in constraints:
            if not matches(one["labelSelector"], pod.labels):
                yield f"{pod.where}: the constraint on {one['topologyKey']} counts other pods"
        if sum(matches(budget["spec"]["selector"], pod.labels) for budget in budgets) != 1:
            yield f"{pod.where} is not covered by exactly one PodDisruptionBudget"


def variables(documents):
    """Every $(NAME) in arguments is a variable of the container."""
    for pod in workloads(documents):
        known = {variable["name"] for variable in pod.main().get("env", [])}
        for used in re.findall(r"\$\((\w+)\)", " ".join(pod.main()["args"])):
            if used not in known:
                yield f"{pod.where}: $({used}) is no variable of its container"


def scaling(documents):
    """Autoscalers scale what is there, and each workload has at most one."""
    there = {(one["kind"], one["metadata"]["name"]) for one in documents}
    scaled = []
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for one in of_kind(documents, kind):
            target = one["spec"]["scaleTargetRef"]
            scaled.append((target["kind"], target["name"]))
            if scaled[-1] not in there:
                yield f"{kind} {one['metadata']['name']} scales {target['kind']} {target['name']}, which is not there"
    for target in set(scaled):
        if scaled.count(target) > 1:
            yield f"{target[0]} {target[1]} is scaled twice"


def flags(documents, known):
    """Every flag in arguments and in the file of flags is one that the program has. known: command -> flags."""
    for pod in workloads(documents):
        given = pod.flags()
        command = given[""]
        for flag in given:
            if flag and flag not in known[command]:
                yield f"{pod.where}: tandem {command} has no {flag}"
        yield from _flags_of_file(documents, pod, command, known)


def _flags_of_file(documents, pod, command, known):
    path = pod.flags().get("--config")
    mounted = {mount["mountPath"]: mount["name"] for mount in pod.main().get("volumeMounts", [])}
    folder, _, name = (path or "").rpartition("/")
    volume = next((one for one in pod.spec.get("volumes", []) if one["name"] == mounted.get(folder)), {})
    config = volume.get("configMap", {}).get("name")
    text = next((one["data"].get(name) for one in of_kind(documents, "ConfigMap")
                 if one["metadata"]["name"] == config), None)
    if text is None:
        yield f"{pod.where}: --config={path} is no file of a ConfigMap that is mounted there"
        return
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    if command not in parser:
        yield f"{pod.where}: {name} has no section [{command}]"
    for section in parser.sections():
        for key in parser[section]:
            if f"--{key}" not in known.get(section, ()):
                yield f"{pod.where}: {name} has {key} in [{section}], which tandem {section} has not"
            elif f"--{key}" in PORT_FLAGS:
                yield f"{pod.where}: {name} sets {key}, which belongs beside the ports of the pod"


def metrics(documents, known):
    """Queries of autoscalers use metrics that exist. known: text of the sources that name them."""
    for one in of_kind(documents, "ScaledObject"):
        for trigger in one["spec"]["triggers"]:
            yield from unknown_metrics(f"ScaledObject {one['metadata']['name']}", trigger["metadata"]["query"], known)


def unknown_metrics(where, query, known):
    for name in re.findall(r"\btandem_\w+", query):
        if f'"{name}"' not in known:
            yield f"{where} queries {name}, which nothing exports"


PLAIN_RULES = (references, mounts, selectors, egress, services, probes, ports, security, draining, spreading, variables,
               scaling)
