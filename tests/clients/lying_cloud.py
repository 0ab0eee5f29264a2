"""A provider that is slow, answers wrongly, or speaks another version. It changes one function of the Python example.

usage: lying_cloud.py slow|cluster|version|gone ENDPOINT [OPTIONS OF THE EXAMPLE]
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "clients", "cloud", "python"))
import provider  # noqa: E402

mode = sys.argv.pop(1)
honest = provider.Cloud


class Liar(honest):
    def Hello(self, request, context):
        answer = honest.Hello(self, request, context)
        if mode == "version":
            answer.version = "v9"
        return answer

    def EnsureBalancer(self, request, context):
        if mode == "slow":
            time.sleep(3)
        answer = honest.EnsureBalancer(self, request, context)
        if mode == "cluster":
            answer.cluster.uid = "another"
        return answer

    def GetInstance(self, request, context):
        print("an instance is asked for", flush=True)
        if mode == "gone" and not hasattr(self, "lied"):
            self.lied = True
            context.abort(provider.grpc.StatusCode.NOT_FOUND, "instance not found")
        return honest.GetInstance(self, request, context)


provider.Cloud = Liar
provider.main()
