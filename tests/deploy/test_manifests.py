"""deploy/: what Kubernetes, nats-server and Spark say to the files, as far as each can be asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from tests.support.certificates import Certificates

from jetspark.cli import app
from jetspark.server import find_server
from jetspark.spark.fast_start import class_archive
from jetspark.spark.java import find_java

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
UNIT = ROOT / "deploy" / "systemd" / "jetspark.service"
SPARK = Path(pyspark.__file__).parent
FILES = ["namespace.yaml", "nats.yaml", "pipeline.yaml"]
PASSWORDS = {
    "PIPELINE_PASSWORD": "pXq7-hidden",
    "STREAMS_PASSWORD": "pXq8-hidden",
    "ADMIN_PASSWORD": "pXq9-hidden",
}
# Prefixes of names that Spark puts together from a volume's kind and name.
VOLUMES = re.compile(
    r"spark\.kubernetes\.executor\.(secrets\.[\w-]+|volumes\.persistentVolumeClaim\.\w+\."
    r"(mount\.path|options\.claimName))"
)
ACCOUNT = "spark.kubernetes.authenticate.executor.serviceAccountName"
"""Spark puts this name together, too."""


@cache
def documents() -> list[dict[str, Any]]:
    return [
        document for file in FILES for document in yaml.safe_load_all((FOLDER / file).read_text())
    ]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


def values(document: object, key: str) -> Iterator[Any]:
    """What stands under a key, wherever it is."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from values(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from values(value, key)


def the(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in of_kind(kind) if one["metadata"]["name"] == name)
    return found


def the_container(kind: str, name: str) -> dict[str, Any]:
    """The only one of a pod."""
    container: dict[str, Any]
    (container,) = the(kind, name)["spec"]["template"]["spec"]["containers"]
    return container


def names(*kinds: str) -> set[str]:
    return {document["metadata"]["name"] for kind in kinds for document in of_kind(kind)}


# -- Kubernetes ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_document_is_what_kubernetes_takes(version: str) -> None:
    for document in documents():
        # Importing it takes 2 s, which every process that collects tests would pay.
        import kubernetes_validate

        kubernetes_validate.validate(document, version, strict=True)


def test_all_files_are_applied_and_no_name_stands_twice() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert kustomization["resources"] == FILES
    made = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in documents()
    ]
    assert len(set(made)) == len(made)
    for generated in kustomization["configMapGenerator"]:
        assert all((FOLDER / file).is_file() for file in generated["files"])


def test_what_is_referred_to_is_there() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    maps = {generated["name"] for generated in kustomization["configMapGenerator"]}
    for document in documents():
        assert {one["name"] for one in values(document, "configMap")} <= maps
        claims = {one["claimName"] for one in values(document, "persistentVolumeClaim")}
        assert claims <= names("PersistentVolumeClaim")
        assert set(values(document, "serviceAccountName")) <= names("ServiceAccount")
        assert set(values(document, "serviceName")) <= names("Service")
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in of_kind("StatefulSet")]
    for one in of_kind("Service"):
        if (other := one["spec"].get("externalName")) is not None:
            name, namespace, *_ = other.split(".")
            assert namespace == the("StatefulSet", name)["metadata"]["namespace"]
    for kind in ("Service", "StatefulSet", "PodDisruptionBudget"):
        for document in of_kind(kind):
            if "externalName" in document["spec"]:
                continue
            selector = document["spec"]["selector"]
            assert selector.get("matchLabels", selector) in labels
    for one in of_kind("StatefulSet"):
        pod = one["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {
            claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])
        }
        ports = {port["name"] for port in values(pod, "containerPort") if isinstance(port, dict)}
        ports |= {port["name"] for found in values(pod, "ports") for port in found}
        for mounts in values(pod, "volumeMounts"):
            assert {mount["name"] for mount in mounts} <= volumes
        assert {probe["port"] for probe in values(pod, "httpGet")} <= ports
    guide = (ROOT / "docs" / "guide-deployment.md").read_text("utf-8")
    for document in documents():
        for secret in values(document, "secretKeyRef"):
            assert f"secret generic {secret['name']}" in guide
            assert f"--from-literal={secret['key']}=" in guide
        for name in values(document, "secretName"):
            assert f"secret generic {name} --from-file" in guide


def test_the_driver_serves_what_its_probes_ask() -> None:
    container = the_container("StatefulSet", "jetspark")
    port = next(one["containerPort"] for one in container["ports"] if one["name"] == "metrics")
    at = container["args"].index("--metrics")
    assert container["args"][at + 1] == f":{port}"
    assert {probe["path"] for probe in values(container, "httpGet")} == {"/healthz", "/readyz"}


def test_the_unit_tells_when_it_is_ready_and_keeps_what_it_writes_to_itself() -> None:
    lines = UNIT.read_text("utf-8").splitlines()
    assert {"Type=notify", "User=jetspark", "RestartSec=10", "[Install]"} <= {*lines}
    assert {"StateDirectoryMode=0700", "UMask=0077", "NoNewPrivileges=true"} <= {*lines}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_has_nothing_against_the_unit(tmp_path: Path) -> None:
    """tests/deploy/test_containers.py receives the readiness."""
    command = Path(sys.executable).with_name("jetspark")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace("/opt/jetspark/bin/jetspark", str(command)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_only_prometheus_may_reach_the_port_for_metrics_and_every_pod_has_a_policy() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind("NetworkPolicy")}
    assert policies.pop("streams") == {
        "podSelector": {"matchLabels": {"app": "streams"}}, "policyTypes": ["Ingress"],
    }  # fmt: skip
    scraping = [one for one in policies["jetspark"]["ingress"] if "ports" in one]
    ((source,),) = (one["from"] for one in scraping)
    assert [one["ports"] for one in scraping] == [[{"port": 9464}]]
    assert source["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    assert source["namespaceSelector"]["matchLabels"]
    assert all(one["from"] for spec in policies.values() for one in spec["ingress"])
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in of_kind("StatefulSet")]
    assert labels == [{"app": "nats"}, {"app": "jetspark"}]
    assert policies["nats"]["podSelector"] == {"matchLabels": {"app": "nats"}}
    assert policies["jetspark"]["podSelector"] == {}


def test_who_may_create_pods_finds_no_password_but_its_own() -> None:
    """A pod can mount every Secret of its namespace."""
    for role in of_kind("Role"):
        rules = [rule for rule in role["rules"] if "create" in rule["verbs"]]
        assert [rule["resources"] for rule in rules] == [["pods"], ["configmaps"]]
        namespace = role["metadata"]["namespace"]
        here = [one for one in documents() if one["metadata"].get("namespace") == namespace]
        assert namespace != the("StatefulSet", "nats")["metadata"]["namespace"]
        used = {name["name"] for one in here for name in values(one, "secretKeyRef")}
        assert used == {"nats-pipeline"}
        assert {name for one in here for name in values(one, "secretName")} == {"nats-ca"}


def test_pods_have_no_rights_that_they_do_not_need() -> None:
    """As the Pod Security Standard "restricted" has it, which both namespaces enforce."""
    for one in of_kind("Namespace"):
        assert one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    template = yaml.safe_load((FOLDER / "executor.yaml").read_text())
    pods = [one["spec"]["template"]["spec"] for one in (*of_kind("StatefulSet"), *of_kind("Job"))]
    for pod in (*pods, template["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert template["spec"]["automountServiceAccountToken"] is False
    settings = spark_settings()
    assert settings["spark.kubernetes.executor.podTemplateFile"] == "/etc/pipeline/executor.yaml"
    (container,) = template["spec"]["containers"]
    assert settings["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    account = settings[ACCOUNT]
    assert the("ServiceAccount", account)["automountServiceAccountToken"] is False
    bound = {one["name"] for binding in of_kind("RoleBinding") for one in binding["subjects"]}
    assert account not in bound


# -- NATS ------------------------------------------------------------------------------------


def test_users_have_the_permissions_that_acl_prints_and_no_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = (FOLDER / "nats.conf").read_text("utf-8")
    users = re.findall(
        r"user: (\w+), password: \$\w+\s+# jetspark (acl .*)\n( +perm[^#]*?\n {8}})", config
    )
    assert [user for user, _, _ in users] == ["pipeline", "streams"]
    for _, command, permissions in users:
        assert app.run(command.split()) == app.SUCCEEDED
        assert permissions.split() == capsys.readouterr().out.split()
    assert len(re.findall(r"\buser: ", config)) == len(users) + 1  # the admin of the servers
    pipeline = tomllib.loads((FOLDER / "pipeline.toml").read_text("utf-8"))
    (source,) = pipeline["sources"].values()
    assert users[0][1].endswith(
        f"--stream {source['stream']} --progress-consumer {source['progress_consumer']}"
    )


def test_nats_server_accepts_the_manifests_configuration(
    certificates: Certificates, tmp_path: Path
) -> None:
    text, config = (FOLDER / "nats.conf").read_text("utf-8"), tmp_path / "nats.conf"
    for name, file in (
        ("tls.crt", certificates.server_cert),
        ("tls.key", certificates.server_key),
        ("ca.crt", certificates.ca),
    ):
        text = text.replace(f"/etc/nats-tls/{name}", str(file))
    config.write_text(text, "utf-8")
    done = subprocess.run(
        [find_server(), "-t", "-c", config],
        env=os.environ | PASSWORDS | {"POD_NAME": "nats-0", "ADVERTISE": "nats-0:4222"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grace = the("StatefulSet", "nats")
    seconds = grace["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    match = re.search(r"lame_duck_duration: (\d+)s", config.read_text())
    assert match is not None
    assert int(match[1]) < seconds
    routes = re.findall(r"nats://(nats-\d)\.(nats-headless):6222", config.read_text())
    assert routes == [(f"nats-{n}", "nats-headless") for n in range(grace["spec"]["replicas"])]


# -- the pipeline ----------------------------------------------------------------------------


def test_manifest_driver_pod_and_ports_match_spark_defaults() -> None:
    settings = spark_settings()
    driver = the("StatefulSet", "jetspark")
    pod = f"{driver['metadata']['name']}-0"
    assert driver["spec"]["replicas"] == 1
    assert settings["spark.kubernetes.driver.pod.name"] == pod
    assert settings["spark.driver.host"] == f"{pod}.{driver['spec']['serviceName']}"
    container = the_container("StatefulSet", "jetspark")
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports["driver"] == settings["spark.driver.port"]
    assert ports["blocks"] == settings["spark.driver.blockManager.port"]
    assert container["image"] == settings["spark.kubernetes.container.image"]
    assert settings["spark.kubernetes.namespace"] == driver["metadata"]["namespace"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.lake"
    assert settings[f"{volume}.mount.path"] == mounts["lake"]
    assert settings[f"{volume}.options.claimName"] in names("PersistentVolumeClaim")


def test_spark_knows_every_setting() -> None:
    wanted = {name for name in spark_settings() if not VOLUMES.fullmatch(name)} - {ACCOUNT}
    jars = SPARK / "jars"
    for pattern in ("spark-core_*.jar", "spark-kubernetes_*.jar"):
        (jar,) = jars.glob(pattern)
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.search(r"/(internal/config|deploy/k8s)/.*\.class", name):
                    code = archive.read(name)
                    # A setting's name stands in the class as it is, with its length before it.
                    wanted -= {
                        one for one in wanted if len(one).to_bytes(2, "big") + one.encode() in code
                    }
    assert wanted == set()


def spark_settings() -> dict[str, str]:
    lines = (FOLDER / "spark-defaults.conf").read_text("utf-8").splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


# -- the image -------------------------------------------------------------------------------


def test_the_image_installs_extras_that_there_are() -> None:
    text = (ROOT / "deploy" / "image" / "Dockerfile").read_text("utf-8")
    match = re.search(r"\[([\w,]+)\]\"", text)
    assert match is not None
    # No layer of the image that is kept has the folder from which it was built.
    assert "COPY . " not in text.rpartition("\nFROM ")[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(match[1].split(",")) <= project["optional-dependencies"].keys()


FROM_ARCHIVE = "shared objects file (top)"
"""What Java logs of a class that it takes from an archive of ours, and not from its own."""
EXECUTOR = {
    "SPARK_HOME": str(SPARK),
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
}


@pytest.fixture
def entrypoint(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs the image's entry point with a java that prints its arguments."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)

    def run(*arguments: str, **environment: str) -> list[str]:
        path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [ROOT / "deploy" / "image" / "entrypoint.sh", *arguments],
            env={"PATH": path} | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    return run


def test_image_entrypoint_runs_its_arguments_as_a_command(
    entrypoint: Callable[..., list[str]],
) -> None:
    assert entrypoint("printf", "%s\\n", "a b", "c") == ["a b", "c"]


def test_image_entrypoint_starts_a_spark_executor(entrypoint: Callable[..., list[str]]) -> None:
    told = entrypoint(
        "executor",
        **EXECUTOR,
        JETSPARK_FAST_START="off",
        SPARK_CONF_DIR="/conf",
        SPARK_JAVA_OPT_0="-Da=b c",
        SPARK_JAVA_OPT_1='-Dquote="$x"',
    )
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    (slf4j,) = (SPARK / "jars").glob("slf4j-api-*.jar")
    path = f"{slf4j}:{SPARK}/jars/*:/conf"
    assert told[:7] == [*("-Da=b c", '-Dquote="$x"', "-Xms2g", "-Xmx2g", "-cp", path, backend)]
    given = dict(zip(told[7::2], told[8::2], strict=True))
    assert given == {
        "--driver-url": "spark://driver",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.1",
        "--resourceProfileId": "0",
        "--podName": "pod",
    }
    # And the backend of the Spark that is installed takes these arguments.
    (jar,) = (SPARK / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as archive:
        code = archive.read(backend.replace(".", "/") + "$.class")
    assert all(name.encode() in code for name in given)


@pytest.fixture
def archive() -> class_archive.ClassArchive:
    found = class_archive.class_archive()
    assert found is not None
    found.make()
    return found


@pytest.mark.spark
def test_executors_of_the_image_take_the_class_archive(
    entrypoint: Callable[..., list[str]], archive: class_archive.ClassArchive, tmp_path: Path
) -> None:
    java = find_java().resolve()
    told = entrypoint(
        "executor",
        **EXECUTOR,
        JAVA_HOME=str(java.parents[1]),
        JETSPARK_CLASS_ARCHIVES=str(archive.file.parent),
        SPARK_CONF_DIR=str(tmp_path),
    )
    options = told[: told.index("-cp") + 2]
    assert options[:2] == archive.jvm_options()
    loaded = tmp_path / "loaded"
    command = [str(java), *options, f"-Xlog:class+load:file={loaded}"]
    subprocess.run([*command, "org.apache.spark.deploy.SparkSubmit", "--version"], check=True)
    assert loaded.read_text().count(FROM_ARCHIVE) > 1000


@pytest.mark.spark
def test_the_manifests_driver_takes_the_settings_and_the_class_archive(
    archive: class_archive.ClassArchive, tmp_path: Path
) -> None:
    """Java itself is asked: what the manifest gives to Spark's launcher, which starts it."""
    container = the_container("StatefulSet", "jetspark")
    environment = {one["name"]: one.get("value", "") for one in container["env"]}
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "pipeline")
    submit = environment["PYSPARK_SUBMIT_ARGS"].replace(mount["mountPath"], str(FOLDER)).split()
    assert submit.pop() == "pyspark-shell"
    loaded = tmp_path / "loaded"
    options = [*archive.jvm_options(), f"-Xlog:class+load:file={loaded}"]
    environment |= {"SPARK_HOME": str(SPARK), "SPARK_SUBMIT_OPTS": " ".join(options)}
    done = subprocess.run(
        [SPARK / "bin" / "spark-submit", *submit, "--verbose", "--master", "local", "/none.py"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    for name, value in spark_settings().items():
        shown = "*********(redacted)" if "secret" in name else value
        assert f"({name},{shown})" in done.stdout + done.stderr
    assert loaded.read_text().count(FROM_ARCHIVE) > 1000
