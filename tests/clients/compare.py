#!/usr/bin/env python3
"""Compares objects that were sent to a server with the objects that the server returns.

usage: compare.py SENT.json LIVE.json

SENT contains documents one after another, as `kubectl create --dry-run=client -o json` prints them; LIVE is a List.
The server may add fields. It must not change, drop or reorder the sent fields, or keep map entries that were removed.
"""

import json
import re
import sys
from fractions import Fraction

# Maps whose entries are all written by the user. A further entry means that the server has not removed an entry.
WHOLE_MAPS = {"data", "binaryData", "nodeSelector", "matchLabels", "labels", "annotations", "hard"}
# Annotations that clients and controllers add.
ADDED_ANNOTATIONS = ("kubectl.kubernetes.io/", "deployment.kubernetes.io/", "deprecated.daemonset.template.generation",
                     "batch.kubernetes.io/", "pv.kubernetes.io/", "volume.")
# Labels that the server adds to a Job's pods and to namespaces.
ADDED_LABELS = ("batch.kubernetes.io/", "controller-uid", "job-name", "kubernetes.io/metadata.name")
# Fields that Kubernetes leaves out when they are zero.
ZERO_LEFT_OUT = {"value", "globalDefault"}

# Paths of fields that are quantities. In all other fields 80 and "80" differ.
QUANTITIES = re.compile(r"\.(requests|limits|hard|max|min|default|defaultRequest|sizeLimit|divisor|averageValue)\b")

SUFFIXES = {"": 1, "m": Fraction(1, 1000), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9), "k": 1000,
            **{s: 1000 ** (i + 2) for i, s in enumerate("MGTPE")},
            **{s + "i": 1024 ** (i + 1) for i, s in enumerate("KMGTPE")}}


def main():
    sent = {identity(item): item for item in documents(open(sys.argv[1], encoding="utf-8").read())}
    live = {identity(item): item for item in documents(open(sys.argv[2], encoding="utf-8").read())}
    problems = []
    for name, item in sent.items():
        if name not in live:
            problems.append(f"{' '.join(name)}: is missing")
        else:
            compare(item, live[name], " ".join(name) + ": ", "", problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not sent:
        sys.exit("nothing was sent")
    if problems:
        sys.exit(f"{len(problems)} differences")
    print(f"{len(sent)} objects are stored as they were sent")


def documents(text):
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, re.compile(r"\s*").match(text, at).end())
        if document["kind"] == "List":
            yield from document["items"]
        else:
            yield document


def identity(item):
    return item["kind"], item["metadata"]["name"]


def compare(sent, live, path, key, problems):
    if isinstance(sent, dict) and isinstance(live, dict):
        for name, value in sent.items():
            if name in live:
                compare(value, live[name], f"{path}.{name}", name, problems)
            elif not (name in ZERO_LEFT_OUT and not value):
                problems.append(f"{path}.{name} is missing, sent {value!r}")
        if key in WHOLE_MAPS:
            added = {"annotations": ADDED_ANNOTATIONS, "labels": ADDED_LABELS, "matchLabels": ADDED_LABELS}.get(key, ())
            for name in live.keys() - sent.keys():
                if not name.startswith(added or ("\0",)):
                    problems.append(f"{path}.{name} was not sent, is {live[name]!r}")
    elif isinstance(sent, list) and isinstance(live, list):
        if len(sent) != len(live):
            problems.append(f"{path} has {len(live)} entries, sent {len(sent)}")
        for index, (a, b) in enumerate(zip(sent, live)):
            compare(a, b, f"{path}[{index}]", "", problems)
    elif sent is None or isinstance(sent, bool) or isinstance(live, bool):
        if sent is not live:
            problems.append(f"{path} is {live!r}, sent {sent!r}")
    elif sent != live and not (QUANTITIES.search(path) and same_quantity(sent, live)):
        problems.append(f"{path} is {live!r}, sent {sent!r}")


def same_quantity(sent, live):
    """Kubernetes returns quantities in one canonical form: "500m" for 0.5, and "1Gi" for 1024Mi."""
    numbers = [quantity(str(value)) for value in (sent, live)]
    return isinstance(live, str) and numbers[0] is not None and numbers[0] == numbers[1]


def quantity(text):
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", text)
    return Fraction(match[1]) * SUFFIXES[match[2]] if match and match[2] in SUFFIXES else None


if __name__ == "__main__":
    main()
