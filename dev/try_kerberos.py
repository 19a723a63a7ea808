"""Try a feed with a Kafka that asks for Kerberos: a KDC of MIT's, a broker, and `kafka-ingest run` by a keytab.

`try_kerberos.py [FOLDER]`: FOLDER holds a confluent-kafka whose librdkafka knows Kerberos, as docs/security.md says how
to build it; without one, the refusal is shown. Needs Debian's krb5-kdc, krb5-admin-server, krb5-user and
libsasl2-modules-gssapi-mit.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from dies_with_parent import dying_with_this_process
from embedded_broker import QUICK_START, EmbeddedBroker
from environment import ROOT, child_environment
from free_ports import LOOPBACK, random_free_ports
from order_events import PARTITIONS, create_topic, order_events, produce

REALM, USER, TOPIC = "EXAMPLE.ORG", "ingest@EXAMPLE.ORG", "orders"
BROKER = f"kafka/localhost@{REALM}"
LISTENER = "KERBEROS"
REFUSAL = "a librdkafka that knows sasl.mechanism GSSAPI"
KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 EXAMPLE.ORG = {{
  database_name = {home}/principals
  key_stash_file = {home}/stash
 }}
"""
CLIENT_CONF = """[libdefaults]
 default_realm = EXAMPLE.ORG
 dns_lookup_kdc = false
 rdns = false
 udp_preference_limit = 1
[realms]
 EXAMPLE.ORG = {{
  kdc = 127.0.0.1:{port}
 }}
"""


def start_kdc(home: Path) -> subprocess.Popen[bytes]:
    """Start a KDC that ends with this process, with a keytab for the broker and one for the feed."""
    [port] = random_free_ports(1)
    (home / "kdc.conf").write_text(KDC_CONF.format(home=home, port=port))
    (home / "krb5.conf").write_text(CLIENT_CONF.format(port=port))
    own = {"KRB5_CONFIG": str(home / "krb5.conf"), "KRB5_KDC_PROFILE": str(home / "kdc.conf")}
    os.environ.update(own, KRB5CCNAME=f"FILE:{home}/tickets", PATH=f"{os.environ['PATH']}:/usr/sbin")
    subprocess.run(["kdb5_util", "create", "-s", "-P", "of-a-trial", "-r", REALM], check=True, capture_output=True)
    for name, keytab in ((BROKER, "broker"), (USER, "ingest")):
        for command in (f"addprinc -randkey {name}", f"ktadd -k {home}/{keytab}.keytab {name}"):
            subprocess.run(["kadmin.local", "-r", REALM, "-q", command], check=True, capture_output=True)
    return subprocess.Popen(dying_with_this_process(["krb5kdc", "-n", "-r", REALM]))


def main() -> None:
    with TemporaryDirectory(prefix="kafka-ingest-kerberos-") as folder:
        home = Path(folder)
        kdc = start_kdc(home)
        of_java = f"-Djava.security.krb5.conf={home}/krb5.conf"
        login = f'useKeyTab=true storeKey=true keyTab="{home}/broker.keytab" principal="{BROKER}"'
        prefix, ports = f"listener.name.{LISTENER.lower()}", random_free_ports(3)
        plain, controller, kerberos = (f"{LOOPBACK}:{port}" for port in ports)
        broker = EmbeddedBroker(
            home / "broker",
            port=ports[0],
            jvm_flags=(*QUICK_START, of_java),
            extra={
                # Both clients ask for the principal of the host's name: Java asks the system for that of an address.
                "listeners": f"PLAINTEXT://{plain},CONTROLLER://{controller},{LISTENER}://{kerberos}",
                "advertised.listeners": f"PLAINTEXT://{plain},{LISTENER}://localhost:{ports[2]}",
                "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
                "controller.quorum.voters": f"1@{controller}",
                f"{prefix}.sasl.enabled.mechanisms": "GSSAPI",
                f"{prefix}.sasl.kerberos.service.name": "kafka",
                f"{prefix}.gssapi.sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login};",
            },
        )
        try:
            with broker:
                run_feed(home, broker.bootstrap_servers, f"localhost:{ports[2]}", of_java)
        finally:
            kdc.terminate()
            kdc.wait()


def run_feed(home: Path, plain: str, kerberos: str, of_java: str) -> None:
    """Read a topic by Kerberos from both clients, and show what `doctor` and `run` say; raises on another end."""
    create_topic(plain, TOPIC, PARTITIONS)
    produce(plain, TOPIC, order_events(100, seed=1))
    extra = {
        "bootstrap.servers": kerberos,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.principal": USER,
        "sasl.kerberos.keytab": str(home / "ingest.keytab"),
    }
    (home / "feeds").mkdir()
    conf = {"spark.driver.extraJavaOptions": of_java}
    sink, kafka = {"format": "parquet", "path": "orders"}, {"topics": [TOPIC], "group": "orders-ingest"}
    feed = {"name": "orders", "kafka": kafka, "sink": sink, "spark": {"conf": conf}}
    (home / "feeds" / "orders.yaml").write_text(json.dumps(feed))
    environment = child_environment(home, plain) | {
        "KAFKA_INGEST_FEEDS": str(home / "feeds"),
        "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": extra}),
        "PYTHONPATH": os.pathsep.join(sys.argv[1:2]),
    }
    program = str(ROOT / ".venv" / "bin" / "kafka-ingest")
    refused = set() if sys.argv[1:] else {"doctor", "run"}
    for command in (["db", "upgrade", "--create"], ["doctor", "orders"], ["run", "orders"], ["status", "orders"]):
        began = time.monotonic()
        done = subprocess.run([program, *command], env=environment, check=False, capture_output=True, text=True)
        said = done.stdout + done.stderr
        print(f"{said}\n{' '.join(command)}: exit code {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
        is_refused = done.returncode != 0 and REFUSAL in " ".join(said.split())
        if not (is_refused if command[0] in refused else done.returncode == 0):
            wanted = "the refusal of a librdkafka without Kerberos" if command[0] in refused else "exit code 0"
            raise RuntimeError(f"{' '.join(command)}: expected {wanted}, found exit code {done.returncode}:\n{said}")


if __name__ == "__main__":
    main()
