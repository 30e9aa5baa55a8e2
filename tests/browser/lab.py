"""A JupyterLab server of our own, on a copy of the notebooks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PATIENCE = 400  # seconds for what takes a few, on a machine that is busy with something else
QUIET = {"fetchNews": "false", "checkForUpdates": False}


class Lab:
    """A JupyterLab server in a process group of its own, with settings and state of its own, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.notebooks, self.log = folder / "notebooks", folder / "server.log"
        shutil.copytree(NOTEBOOKS, self.notebooks)
        settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(QUIET))
        own = {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
               "JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.token = f"http://127.0.0.1:{port}", os.urandom(16).hex()
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser",
            "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}",
            f"--notebook-dir={self.notebooks}", "--ServerApp.terminals_enabled=False",
            "--LabApp.extension_manager=readonly", "--LabApp.news_url=",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]  # fmt: skip
        environment = {
            **os.environ,
            **{name: str(folder / place) for name, place in own.items()},
            "MINILAYUP_FAST": "1",
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/api/status?token={self.token}", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()}")

    def close(self) -> None:
        """End the server and its kernels, which are in groups of their own."""
        import psutil

        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            for left in psutil.wait_procs(family, 5)[1]:
                left.kill()
