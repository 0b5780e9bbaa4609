"""Nodes of a network that exists on this machine alone: a network namespace each, joined by a bridge in another namespace, and
a DNS server there. Needs root, iproute2 and dnsmasq."""
import os
import pathlib
import shutil
import signal
import subprocess

DOMAIN = "cluster.test"
DNS_ADDRESS = "10.77.0.1"


def sh(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def missing():
    """Why this machine cannot have such a network, or ""."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for tool, package in (("ip", "iproute2"), ("dnsmasq", "dnsmasq-base")):
        if shutil.which(tool) is None:
            return f"{tool} is not here (Debian: {package})"
    return ""


class Node:
    """A machine of the network."""

    def __init__(self, network, number):
        self.namespace, self._network = f"{network.prefix}-{number}", network
        self.address = f"10.77.{number // 250}.{number % 250 + 1}"
        self.port = f"to-{number}"  # of the bridge

    def popen(self, words, **options):
        """Starts a program there, as the leader of a process group of its own."""
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *words], start_new_session=True, **options)

    def cut_off(self):
        self._network.on_hub("ip", "link", "set", self.port, "down")

    def join(self):
        self._network.on_hub("ip", "link", "set", self.port, "up")


class Network:
    """As a context: what it made is gone afterwards, also after an error."""

    def __init__(self, folder):
        self.prefix = f"tandem{os.getpid()}"
        self.hub = f"{self.prefix}-hub"
        self._folder = pathlib.Path(folder)
        self._nodes = []
        self._dns = None
        self._routers = []

    def __enter__(self):
        sh("ip", "netns", "add", self.hub)
        try:
            self.on_hub("ip", "link", "set", "lo", "up")
            self.on_hub("ip", "link", "add", "bridge", "type", "bridge")
            self.on_hub("ip", "addr", "add", f"{DNS_ADDRESS}/16", "dev", "bridge")
            self.on_hub("ip", "link", "set", "bridge", "up")
            self.set_routers([])
            self.start_dns()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop_dns()
        for namespace in [node.namespace for node in self._nodes] + [self.hub]:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, timeout=30)
            shutil.rmtree(f"/etc/netns/{namespace}", ignore_errors=True)

    def on_hub(self, *words):
        sh("ip", "netns", "exec", self.hub, *words)

    def add_node(self):
        node = Node(self, len(self._nodes) + 1)
        self._nodes.append(node)
        # What `ip netns exec` shows a program there in place of /etc/resolv.conf.
        resolv = pathlib.Path("/etc/netns", node.namespace, "resolv.conf")
        resolv.parent.mkdir(parents=True)
        resolv.write_text(f"nameserver {DNS_ADDRESS}\n")
        sh("ip", "netns", "add", node.namespace)
        self.on_hub("ip", "link", "add", node.port, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
        self.on_hub("ip", "link", "set", node.port, "master", "bridge", "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{node.address}/16", "dev", "eth0"],
                      ["link", "set", "eth0", "up"]):
            sh("ip", "-n", node.namespace, *words)
        return node

    def set_routers(self, addresses):
        """What DNS answers for routers.cluster.test from now on."""
        (self._folder / "hosts").write_text("".join(f"{one} routers.{DOMAIN}\n" for one in addresses))
        if self._dns is not None:
            self._dns.send_signal(signal.SIGHUP)

    def start_dns(self):
        self._dns = subprocess.Popen(
            ["ip", "netns", "exec", self.hub, "dnsmasq", "--keep-in-foreground", "--no-resolv",
             "--no-hosts", "--conf-file=/dev/null",
             f"--addn-hosts={self._folder}/hosts", f"--local=/{DOMAIN}/", f"--listen-address={DNS_ADDRESS}",
             "--bind-interfaces", "--user=root", f"--pid-file={self._folder}/dnsmasq.pid", "--log-facility=/dev/null"])

    def stop_dns(self):
        if self._dns is not None:
            self._dns.terminate()
            self._dns.wait(timeout=10)
            self._dns = None
