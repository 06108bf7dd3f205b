"""What a server is deployed with: each file is read, and what the image starts is started."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import yaml
from tests.rows import each_row
from tests.timing import HANG

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMMAND = [sys.executable, "-m", "orbiter.memory.cli"]
USER = 65534
"""A user without rights, if the tests run as root."""


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with what follows it on all its lines."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def last(name: str) -> str:
    return next(rest for each, rest in reversed(instructions()) if each == name)


def variables() -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(last("ENV")))


def test_the_image_has_a_user_of_its_own_and_a_check_and_copies_what_there_is() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "EXPOSE", "USER", "HEALTHCHECK",
             "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {name for name, _ in instructions()} == known
    assert last("USER") == "10001"
    assert last("HEALTHCHECK").startswith("--interval")
    assert all(
        ":" in rest and "latest" not in rest for name, rest in instructions() if name == "FROM"
    )
    for name, rest in instructions():
        for each in rest.split()[:-1] if name == "COPY" else ():
            assert (ROOT / each).exists(), each
    assert (ROOT / "models/minilm/pyproject.toml").exists()


def test_the_image_is_built_of_few_files_and_no_secrets() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    copied = {each for name, rest in instructions() if name == "COPY" for each in rest.split()[:-1]}

    assert lines[0] == "*"  # what is not named is not sent
    assert set(sent) == copied
    assert any("[server,local,postgres,redis,oidc,otel]" in rest for _, rest in instructions())


@pytest.fixture(scope="module")
def installed_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the command of the built wheel, in an environment that any user may read.

    What it needs is taken from this environment, so no index is asked; the package is not.
    """
    folder = Path(tempfile.mkdtemp(prefix="orbiter-image-"))
    folder.chmod(0o755)
    wheels = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = Path(
        sysconfig.get_path("purelib", "venv", vars={"base": str(venv), "platbase": str(venv)})
    )
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install"]
    pip += ["--no-index", "--no-deps", "--quiet", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    # A line of a `.pth` file adds a folder, and does not read the `.pth` files in it: an editable
    # install of the package is not seen.
    (site / "needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    code = "import orbiter.memory; print(orbiter.memory.__file__)"
    imported = subprocess.run(
        [venv / "bin/python", "-I", "-c", code], check=True, capture_output=True, text=True
    )
    assert imported.stdout.startswith(str(site)), imported.stdout
    yield venv / "bin/orbiter-memory"
    shutil.rmtree(folder)


def may_be_another_user() -> bool:
    """Tell whether the tests run as root, with an interpreter that others may run, too."""
    if os.geteuid() != 0:
        return False
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, user=USER, cwd="/")
    except OSError:  # it lies in root's own folder
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="users and signals of POSIX")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_the_image_starts_answers_its_check_and_ends_when_it_is_told(
    installed_command: Path, scheme: str
) -> None:
    # Not in `tmp_path`, which only its owner may enter.
    folder = installed_command.parents[2] / scheme
    tmp_path, work = folder / "data", folder / "work"
    for each in (tmp_path, work):
        each.mkdir(parents=True)
    work.chmod(0o555)
    # As the image does: as a user without rights, where nothing can be written.
    as_user: dict[str, Any] = {"cwd": work, "timeout": HANG}
    if may_be_another_user():
        os.chown(tmp_path, USER, USER)
        as_user |= {"user": USER, "group": USER, "extra_groups": []}
    env = {name: value.replace("/data", str(tmp_path)) for name, value in variables().items()}
    env |= {"PATH": os.environ["PATH"], "ORBITER_MEMORY_MODEL": "none"}
    if scheme == "https":
        pem = tmp_path / "server.pem"
        trustme.CA().issue_cert("memory.example.com").private_key_and_cert_chain_pem.write_to_path(
            str(pem)
        )
        env |= {"ORBITER_MEMORY_TLS_CERT": str(pem), "ORBITER_MEMORY_TLS_KEY": str(pem)}
    env["ORBITER_MEMORY_PORT"] = "0"
    assert json.loads(last("ENTRYPOINT")) == ["orbiter-memory"]
    program = str(installed_command)
    start = [program, *json.loads(last("CMD"))]

    without: subprocess.CompletedProcess[str] = subprocess.run(
        start, env=env, check=False, capture_output=True, text=True, **as_user
    )
    assert without.returncode == 2  # nobody may come in yet
    assert "keys create" in without.stderr

    subprocess.run([program, "keys", "create", "--user", "alice"], env=env, check=True, **as_user)
    del as_user["timeout"]
    with subprocess.Popen(
        [*start, "--json"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **as_user,
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            port = str(httpx.URL(url).port)
            check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
            assert (url.partition(":")[0], check[0]) == (scheme, "orbiter-memory")
            asked = [program, *check[1:]]
            at_port = {**env, "ORBITER_MEMORY_PORT": port}
            subprocess.run(asked, env=at_port, check=True, timeout=HANG, **as_user)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=HANG)
        finally:
            process.kill()

    assert process.returncode == 0, log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line["route"] for line in lines if "route" in line] == ["/readyz"]
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*")} >= {"memory.db"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def test_the_composed_set_is_sound() -> None:
    (composed,) = documents("compose.yaml")
    services = composed["services"]

    assert services.keys() == {"memory", "postgres", "redis"}
    for service in services.values():
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in composed["volumes"]
    memory = services["memory"]
    assert memory["read_only"]
    assert (DEPLOY / memory["build"]["context"] / memory["build"]["dockerfile"]).exists()
    assert memory["depends_on"].keys() <= services.keys()
    assert all("healthcheck" in services[name] for name in memory["depends_on"])


def test_the_manifests_fit_together() -> None:
    kinds = {each["kind"]: each for each in documents("kubernetes.yaml")}
    deployment, service, budget, cron = (
        kinds.pop(each) for each in ("Deployment", "Service", "PodDisruptionBudget", "CronJob")
    )
    assert not kinds
    pod = deployment["spec"]["template"]
    job = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (sweep,) = job["containers"]

    # Jobs are known to the server that took them: a client stays with one.
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert budget["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    assert sweep["args"] == ["sweep", "--forgotten", "30d", "--yes"]
    assert sweep["env"] == pod["spec"]["containers"][0]["env"][:1]
    assert sweep["securityContext"] == pod["spec"]["containers"][0]["securityContext"]
    assert job["securityContext"] == pod["spec"]["securityContext"]
    assert {each["name"] for each in sweep["volumeMounts"]} == {
        each["name"] for each in job["volumes"]
    }
    (container,) = pod["spec"]["containers"]

    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert {each["name"] for each in container["volumeMounts"]} == {
        each["name"] for each in pod["spec"]["volumes"]
    }
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": container["ports"][0]["name"]}
    assert str(pod["spec"]["securityContext"]["runAsUser"]) == last("USER")
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_proxies_keep_a_client_with_one_server_and_the_name_of_its_request() -> None:
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    caddy = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    page = (ROOT / "docs/operate/run.md").read_text(encoding="utf-8")

    (upstream,) = re.findall(r"upstream (\w+) {(.*?)}", nginx, flags=re.DOTALL)
    assert "hash $http_authorization consistent;" in upstream[1]
    assert f"proxy_pass http://{upstream[0]};" in nginx
    (name,) = re.findall(r"map \$http_x_request_id \$(\w+) {", nginx)
    assert f"proxy_set_header X-Request-ID ${name};" in nginx
    assert "proxy_buffering off;" in nginx
    assert "lb_policy header Authorization" in caddy
    assert "@unnamed not header X-Request-ID *" in caddy
    assert "request_header @unnamed X-Request-ID {http.request.uuid}" in caddy
    assert "flush_interval -1" in caddy
    for file in (nginx, caddy):
        lines = [line for line in file.splitlines() if not line.lstrip().startswith("#")]
        assert "\n".join(lines) in page  # as it is copied


def test_proxies_say_that_they_are_one() -> None:
    # By these headers a server without keys refuses what others send through a proxy.
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    caddy = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")

    for location in re.findall(r"location [^{]*{(.*?)}", nginx, flags=re.DOTALL):
        assert "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;" in location
        assert "proxy_set_header X-Forwarded-Proto $scheme;" in location
    assert "header_up -" not in caddy  # Caddy sends them unless it is told not to
    for page in [*(ROOT / "docs").rglob("*.md"), *DEPLOY.glob("*.*")]:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"location [^{]*{(.*?)}", text, flags=re.DOTALL):
            assert "proxy_pass" not in block or "X-Forwarded-For" in block, page


@each_row(
    "name",
    [
        "Dockerfile",
        "compose.yaml",
        "kubernetes.yaml",
        "orbiter-memory.service",
        "orbiter-memory-sweep.service",
    ],
)
def test_every_variable_that_is_set_is_one_that_is_read(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    page = (ROOT / "docs/operate/settings.md").read_text(encoding="utf-8")

    named = set(re.findall(r"ORBITER_[A-Z_]+", text))
    assert named
    assert all(f"`{each}`" in page for each in named)


def unit_of(name: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name, encoding="utf-8")
    return unit


def test_units_leave_all_settings_to_their_files() -> None:
    for name in ("orbiter-memory.service", "orbiter-memory-sweep.service"):
        text = (DEPLOY / name).read_text(encoding="utf-8")

        # A variable in the unit would override what the settings file says.
        assert set(re.findall(r"^Environment=.*?(ORBITER_\w+)", text, re.MULTILINE)) == {
            "ORBITER_MEMORY_CONFIG"
        }
        assert "EnvironmentFile=-/etc/orbiter-memory.env" in text
        for each in ("User", "DynamicUser", "StateDirectory", "StateDirectoryMode"):
            assert (
                unit_of(name)["Service"][each] == unit_of("orbiter-memory.service")["Service"][each]
            )
    sweep, timer = unit_of("orbiter-memory-sweep.service"), unit_of("orbiter-memory-sweep.timer")
    assert sweep["Service"]["Type"] == "oneshot"
    assert " sweep --forgotten 30d --yes" in sweep["Service"]["ExecStart"]
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def command(*words: str, **env: str) -> str:
    plain = {"PATH": os.environ["PATH"], "ORBITER_MEMORY_MODEL": "none", **env}
    done = subprocess.run(
        [*COMMAND, *words], env=plain, check=False, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_settings_file_of_the_unit_says_which_store_unless_a_variable_does(
    tmp_path: Path,
) -> None:
    file = str(DEPLOY / "orbiter-memory.toml")
    other = str(tmp_path / "other.db")

    by_file = command("doctor", ORBITER_MEMORY_CONFIG=file)
    by_variable = command("doctor", ORBITER_MEMORY_CONFIG=file, ORBITER_MEMORY_URL=other)

    store = "url sqlite:////var/lib/orbiter-memory/memory.db (the settings file)"
    assert store in by_file
    assert f"url {other} (ORBITER_MEMORY_URL)" in by_variable


def test_the_line_for_cron_works_in_its_empty_environment(tmp_path: Path) -> None:
    page = (ROOT / "docs/operate/run.md").read_text(encoding="utf-8")
    line = re.search(
        r"^\d+ \d+ \* \* \* root (ORBITER_MEMORY_CONFIG=.* sweep .*)$", page, re.MULTILINE
    )
    file, store = tmp_path / "settings.toml", tmp_path / "memory.db"
    file.write_text(f'url = "{store}"\n', encoding="utf-8")
    command("remember", "tea", "--user", "alice", ORBITER_MEMORY_URL=str(store))

    assert line is not None
    words = line[1].replace("/opt/orbiter-memory/bin/orbiter-memory", shlex.join(COMMAND))
    done = subprocess.run(
        ["/bin/sh", "-c", words.replace("/etc/orbiter-memory.toml", str(file))],
        env={},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"0 expired and 0 forgotten memories removed from {store}\n"


def test_the_unit_starts_the_server_without_rights() -> None:
    unit = unit_of("orbiter-memory.service")

    assert unit["Service"]["ExecStart"].endswith("/orbiter-memory serve")
    assert "-HUP $MAINPID" in unit["Service"]["ExecReload"]
    assert unit["Service"]["DynamicUser"] == unit["Service"]["NoNewPrivileges"] == "yes"
    assert unit["Install"]["WantedBy"]
