#!/usr/bin/env python3
"""Each rule of rules.py finds what it is there for: the manifests are broken in one place, and one rule must complain."""
import copy
import shutil
import sys
import unittest

try:
    import yaml  # noqa: F401
except ImportError:
    print("left out: PyYAML is not here (Debian: python3-yaml)")
    sys.exit(77)
if shutil.which("kubectl") is None:
    print("left out: kubectl is not here, so that no manifest can be rendered")
    sys.exit(77)

import check_manifests
import custom_kinds
import rendering
import rules

ALL = rendering.render("overlays/tls", ["networkpolicy", "podmonitor", "keda", "inferencepool"])


def find(documents, kind, name):
    return next(one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name)


def pod(documents, name="tandem-decode", kind="StatefulSet"):
    return find(documents, kind, name)["spec"]["template"]["spec"]


def main_container(documents, name="tandem-decode", kind="StatefulSet"):
    return pod(documents, name, kind)["containers"][0]


class ManifestRules(unittest.TestCase):
    def complaints(self, rule, change):
        broken = copy.deepcopy(ALL)
        change(broken)
        self.assertEqual(list(rule(ALL)), [], "the manifests are wrong as they are")
        return "\n".join(rule(broken))

    def expect(self, rule, change, *texts):
        complaints = self.complaints(rule, change)
        for text in texts:
            self.assertIn(text, complaints)

    def test_a_config_map_that_is_not_there(self):
        def change(all):
            pod(all)["volumes"][0]["configMap"]["name"] = "other"
        self.expect(rules.references, change, "names ConfigMap other")

    def test_a_mount_without_its_volume(self):
        self.expect(rules.mounts, lambda all: pod(all)["volumes"].pop(), "is mounted but not there")

    def test_a_selector_that_selects_nothing(self):
        def change(all):
            find(all, "Service", "tandem")["spec"]["selector"]["app.kubernetes.io/component"] = "routers"
            find(all, "PodMonitor", "tandem")["spec"]["selector"]["matchLabels"] = {"app": "tandem"}
        self.expect(rules.selectors, change, "Service tandem selects no pod", "PodMonitor tandem selects no pod")

    def test_a_service_of_a_port_that_pods_do_not_have(self):
        def change(all):
            find(all, "Service", "tandem")["spec"]["ports"][0]["targetPort"] = "web"
            find(all, "InferencePool", "tandem")["spec"]["targetPorts"][0]["number"] = 8001
        self.expect(rules.selectors, change, "Service tandem wants port web", "InferencePool tandem wants port 8001")

    def test_a_network_policy_to_another_port(self):
        def change(all):
            find(all, "NetworkPolicy", "tandem-kv-from-prefill")["spec"]["egress"][0]["ports"][0]["port"] = 8083
        self.expect(rules.egress, change, "opens 8083, not a port of StatefulSet tandem-decode")

    def test_routers_that_workers_cannot_find(self):
        def change(all):
            del find(all, "Service", "tandem-routers")["spec"]["publishNotReadyAddresses"]
        self.expect(rules.services, change, "hides routers that are not ready yet")

        def change_name(all):
            main_container(all)["args"] = [one.replace("dns:tandem-routers", "dns:tandem")
                                           for one in main_container(all)["args"]]
        self.expect(rules.services, change_name, "is no dns:NAME:PORT of a headless service")

    def test_a_probe_of_another_page(self):
        def change(all):
            main_container(all)["readinessProbe"]["httpGet"]["path"] = "/livez"
            del main_container(all)["startupProbe"]
        self.expect(rules.probes, change, "readinessProbe asks /livez", "has no startupProbe")

    def test_a_flag_that_opens_another_port_than_is_declared(self):
        def change(all):
            main_container(all)["ports"][0]["containerPort"] = 8083
        self.expect(rules.ports, change, "StatefulSet tandem-decode opens")

    def test_a_container_with_more_rights(self):
        def change(all):
            container = main_container(all)
            container["securityContext"] = {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
            del container["resources"]["limits"]["memory"]
            pod(all)["securityContext"]["runAsNonRoot"] = False
            pod(all)["hostNetwork"] = True
            pod(all)["automountServiceAccountToken"] = True
        self.expect(rules.security, change, "may gain privileges", "runs as root", "may run as root",
                    "may write to its root file system", "keeps capabilities", "has no memory in its limits",
                    "has hostNetwork", "gets a token")

    def test_a_role_that_gives_rights(self):
        role = {"kind": "Role", "metadata": {"name": "reader"}}
        self.expect(rules.security, lambda all: all.append(role), "Role reader gives rights")

    def test_a_pod_that_is_killed_while_it_drains(self):
        def change(all):
            pod(all, "tandem-router", "Deployment")["terminationGracePeriodSeconds"] = 65
        self.expect(rules.draining, change, "is killed after 65 s, and takes 65 s")

    def test_pods_that_do_not_spread(self):
        def change(all):
            pod(all)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] = {"app": "other"}
            pod(all, "tandem-prefill")["topologySpreadConstraints"] = []
            find(all, "PodDisruptionBudget", "tandem-router")["spec"]["selector"]["matchLabels"] = {"app": "other"}
        self.expect(rules.spreading, change, "counts other pods", "tandem-prefill does not spread",
                    "tandem-router is not covered")

    def test_a_variable_that_is_not_set(self):
        self.expect(rules.variables, lambda all: main_container(all)["env"].clear(), "$(POD_IP) is no variable")

    def test_an_autoscaler_of_what_is_not_there(self):
        def change(all):
            find(all, "ScaledObject", "tandem-prefill")["spec"]["scaleTargetRef"]["name"] = "tandem-decode"
            find(all, "ScaledObject", "tandem-decode")["spec"]["scaleTargetRef"]["kind"] = "Deployment"
        self.expect(rules.scaling, change, "Deployment tandem-decode, which is not there")

    def test_flags_that_the_program_does_not_have(self):
        known = {"router": set(), "worker": set()}
        for document in ALL:
            if document["kind"] in ("Deployment", "StatefulSet"):
                args = document["spec"]["template"]["spec"]["containers"][0]["args"]
                known[args[0]] |= {one.partition("=")[0] for one in args[1:]}
        known["worker"] |= {"--model", "--kv-transport"}
        known["router"] |= {"--model"}

        def rule(documents):
            return rules.flags(documents, known)

        def change(all):
            main_container(all)["args"].append("--datport=1")
            for one in all:
                if one["kind"] == "ConfigMap":
                    one["data"]["tandem.ini"] += "kv-transprot = tcp\nport = 1\n"
        self.expect(rule, change, "tandem worker has no --datport", "has kv-transprot in [worker]",
                    "sets port, which belongs beside")

    def test_a_metric_that_nothing_exports(self):
        known = "".join(path.read_text() for path in (rendering.ROOT / "server" / "admin").glob("*.cc"))

        def change(all):
            find(all, "ScaledObject", "tandem-decode")["spec"]["triggers"][0]["metadata"]["query"] = "tandem_kv_blcks"
        self.expect(lambda all: rules.metrics(all, known), change, "queries tandem_kv_blcks")

    def test_a_field_that_is_misspelt(self):
        def change(all):
            find(all, "ScaledObject", "tandem-decode")["spec"]["minReplicas"] = 2

        def rule(documents):
            for one in documents:
                if custom_kinds.is_custom(one):
                    yield from custom_kinds.unknown_fields(one)
        self.expect(rule, change, "spec.minReplicas")

    def test_kubernetes_own_kinds_are_held_against_their_schemas(self):
        try:
            import kubernetes_validate  # noqa: F401
        except ImportError:
            self.skipTest("kubernetes-validate is not here (make test-deploy installs it)")

        def change(all):
            main_container(all)["readynessProbe"] = {}
        self.expect(check_manifests.form_problems, change, "readynessProbe")


if __name__ == "__main__":
    unittest.main()
