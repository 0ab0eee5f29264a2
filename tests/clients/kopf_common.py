"""Functions that the operators written with kopf share: a certificate for webhooks, and checks of the cluster."""

import os
import subprocess
import sys
import tempfile
import time

from kubernetes.client.exceptions import ApiException


def certificate():
    """Makes a certificate for webhooks, because kopf can do this only with an old version of OpenSSL."""
    folder = tempfile.mkdtemp()
    key, pem = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem],
        check=True, stderr=subprocess.DEVNULL)
    return {"certfile": pem, "pkeyfile": key, "cafile": pem}


def wait_for(what, ask):
    """Repeats `ask` until its result is true, and returns the result. An answer 404 counts as false."""
    for _ in range(600):
        try:
            answer = ask()
            if answer:
                return answer
        except ApiException as error:
            if error.status != 404:
                raise
        time.sleep(0.1)
    sys.exit(f"waited in vain for {what}")


def gone(ask):
    """Whether the server answers `ask` with 404."""
    try:
        ask()
        return False
    except ApiException as error:
        return error.status == 404


def refused(code, text, ask):
    """Checks that the server refuses `ask` with this code and a message that contains the text."""
    try:
        ask()
    except ApiException as error:
        if error.status != code or text not in error.body:
            sys.exit(f"wanted {code} with {text!r}, got {error.status}: {error.body}")
        return
    sys.exit(f"wanted {code} with {text!r}, got no error")


def expect(got, wanted):
    if got != wanted:
        sys.exit(f"wanted {wanted!r}, got {got!r}")
