#!/usr/bin/env python3
"""Posts every bad input of tests/data/bad and compares the answer with expected.txt there."""

import json
import os
import pathlib
import sys

from kubernetes import client, config

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "bad"
MEDIA_TYPES = {".json": "application/json", ".yaml": "application/yaml", ".txt": "text/plain"}


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("set KUBECONFIG to the kubeconfig of the cluster to test")
    config.load_kube_config()
    api = client.ApiClient()
    rows = [line.split(" | ") for line in (FOLDER / "expected.txt").read_text().splitlines()
            if line and not line.startswith("#")]
    unlisted = {path.name for path in FOLDER.iterdir()} - {row[0] for row in rows} - {"expected.txt"}
    if unlisted:
        sys.exit(f"not in expected.txt: {', '.join(sorted(unlisted))}")
    problems = 0
    for name, path, code, reason, message, field in rows:
        problem = check(api, FOLDER / name, path, int(code), reason, message, field)
        problems += problem is not None
        print(f"FAILED {name}: {problem}" if problem else f"ok {name}", flush=True)
    if problems:
        sys.exit(f"{problems} of {len(rows)} bad inputs get another answer than from Kubernetes")


def check(api, file, path, code, reason, message, field):
    headers = dict(api.default_headers)
    headers.update({"Content-Type": MEDIA_TYPES[file.suffix], "Accept": "application/json"})
    # The script sends the file unchanged. With an object the client would encode JSON itself.
    api.update_params_for_auth(headers, [], ["BearerToken"], path, "POST", None)
    answer = api.rest_client.pool_manager.request(
        "POST", api.configuration.host + path, body=file.read_bytes(), headers=headers)
    try:
        status = json.loads(answer.data)
    except ValueError:
        return f"HTTP {answer.status} with a body that is not JSON: {answer.data[:200]!r}"
    causes = [cause.get("field") for cause in (status.get("details") or {}).get("causes", [])]
    if answer.status != code or status.get("code") != code:
        return f"HTTP {answer.status} instead of {code}: {status.get('message')}"
    if status.get("reason") != reason:
        return f"reason {status.get('reason')} instead of {reason}: {status.get('message')}"
    if message.strip() not in status.get("message", ""):
        return f"the message lacks {message!r}: {status.get('message')}"
    if field != "-" and field not in causes:
        return f"no cause names {field}: {causes}"
    return None


if __name__ == "__main__":
    main()
