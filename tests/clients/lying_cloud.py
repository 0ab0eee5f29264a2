"""A provider that is slow, gives wrong answers, or speaks another version. It extends the example provider in Python.

usage: lying_cloud.py slow|cluster|version|gone ENDPOINT [OPTIONS OF THE EXAMPLE]

slow: EnsureBalancer answers after three seconds
cluster: EnsureBalancer answers with the UID of another cluster
version: Hello answers with a version that the manager does not offer
gone: the first GetInstance answers that the instance does not exist
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "clients", "cloud", "python"))
import provider  # noqa: E402

mode = sys.argv.pop(1)
Honest = provider.Cloud


class Liar(Honest):
    def Hello(self, request, context):
        answer = Honest.Hello(self, request, context)
        if mode == "version":
            answer.version = "v9"
        return answer

    def EnsureBalancer(self, request, context):
        if mode == "slow":
            time.sleep(3)
        answer = Honest.EnsureBalancer(self, request, context)
        if mode == "cluster":
            answer.cluster.uid = "another"
        return answer

    def GetInstance(self, request, context):
        print("an instance is asked for", flush=True)
        if mode == "gone" and not hasattr(self, "lied"):
            self.lied = True
            context.abort(provider.grpc.StatusCode.NOT_FOUND, "instance not found")
        return Honest.GetInstance(self, request, context)


provider.Cloud = Liar
provider.main()
