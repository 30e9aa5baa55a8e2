"""`python -m minilayup` is the same as the command `minilayup`."""

from .cli import app

app(prog_name="minilayup")
