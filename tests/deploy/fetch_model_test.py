#!/usr/bin/env python3
"""The script of components/model-init, against a server of this test that has the sample model."""
import functools
import hashlib
import http.server
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INIT = ROOT / "deploy" / "k8s" / "components" / "model-init"
SAMPLE = ROOT / "models" / "sample"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class FetchModel(unittest.TestCase):
    def setUp(self):
        handler = functools.partial(QuietHandler, directory=str(SAMPLE))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def fetch(self, model_list=INIT / "model_files.txt", **environment):
        url = f"http://127.0.0.1:{self.server.server_port}"
        return subprocess.run(["sh", str(INIT / "fetch_model.sh"), str(model_list), f"{self.folder.name}/model"],
                              env=os.environ | {"MODEL_URL": url, "no_proxy": "127.0.0.1"} | environment,
                              capture_output=True, text=True, timeout=60)

    def names(self):
        return sorted(path.name for path in pathlib.Path(self.folder.name, "model").iterdir())

    def write_list(self, text):
        path = pathlib.Path(self.folder.name, "list.txt")
        path.write_text(text)
        return path

    def test_the_list_of_the_component_is_the_sample_model(self):
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fetched 5 files", done.stdout)
        for name in self.names():
            got = pathlib.Path(self.folder.name, "model", name).read_bytes()
            self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256((SAMPLE / name).read_bytes()).digest())

    def test_what_is_there_is_not_fetched_again(self):
        self.fetch()
        pathlib.Path(self.folder.name, "model", "config.json").write_text("damaged")
        again = self.fetch()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("fetched 1 files", again.stdout)

    def test_routers_fetch_no_weights(self):
        self.assertEqual(self.fetch(WEIGHTS="no").returncode, 0)
        self.assertNotIn("model.safetensors", self.names())

    def test_another_file_than_the_list_says_is_refused_and_removed(self):
        done = self.fetch(self.write_list(f"{'0' * 64}  config.json\n"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("config.json has another SHA-256", done.stderr)
        self.assertEqual(self.names(), [])

    def test_a_file_that_the_server_does_not_have_ends_the_script(self):
        done = self.fetch(self.write_list(f"{'0' * 64}  no-such-file\n{'0' * 64}  config.json\n"))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.names(), [])

    def test_paths_stay_within_the_folder(self):
        for path in ("../escaped", "/tmp/escaped"):
            done = self.fetch(self.write_list(f"{'0' * 64}  {path}\n"))
            self.assertEqual(done.returncode, 1)
            self.assertIn(path, done.stderr)


if __name__ == "__main__":
    unittest.main()
