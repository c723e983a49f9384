"""How RabbitMQ 3.10 of Debian is started, without touching an installed server's state.

The node gets its own port mapper (epmd), cookie and configuration, all on loopback and in the bench's directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .system import HOST, Command, Place, System, not_installed

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
PRELAUNCH = "rabbitmq_prelaunch"
PORTS = 3
"""For clients, for other nodes and for the port mapper."""


class RabbitMQSystem(System):
    """A system with this server, whose clients need the Python module `module`."""

    module: str

    def missing(self) -> str | None:
        return not_installed(program=SERVER, package="rabbitmq-server", modules=(self.module,))

    def ports(self, connections: int) -> int:
        return PORTS

    def commands(self, place: Place) -> list[Command]:
        return _commands(Path(place.directory), place.ports)


def _commands(directory: Path, ports: Sequence[int]) -> list[Command]:
    port, distribution, mapper = ports
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    scripts = lay_out(Path(SERVER).resolve().parents[1], directory / "home")
    environment = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_SCRIPTS_DIR": str(scripts),
        # Makes the script exec the server, so that its process id is the server's.
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-noinput -kernel inet_dist_use_interface {127,0,0,1}"
        ),
    }
    # An epmd started by Erlang itself would be a daemon that nobody ends.
    port_mapper = Command(["epmd", "-address", HOST, "-port", str(mapper)], environment)
    return [port_mapper, Command([SERVER], environment)]


def lay_out(installed: Path, home: Path) -> Path:
    """Link the installation without its plugins into `home`, and return the directory of its scripts.

    No plugin is enabled, but each module is searched for in each plugin, which takes a third of the start.
    """
    parts = home / "plugins"  # The server's own parts are in this directory, too.
    parts.mkdir(parents=True)
    for part in (installed / "plugins").iterdir():
        if part.name.startswith(PRELAUNCH) or not part.name.startswith("rabbitmq_"):
            (parts / part.name).symlink_to(part)
    scripts = home / "sbin"
    scripts.symlink_to(installed / "sbin")
    return scripts
