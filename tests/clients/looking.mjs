// Tests the official Node client with a container: its log, commands, attaching, a forwarded port.
//
// usage: KUBECONFIG=... node tests/clients/looking.mjs NODE_FOLDER      NODE_FOLDER: the folder of node_modules

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { setTimeout as rest } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const resolver = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'));
const k8s = await import(pathToFileURL(resolver.resolve('@kubernetes/client-node')));
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';

// Collects the text that is written to a stream. `until` waits for a part of the text.
function gather() {
    const stream = new PassThrough();
    let text = '';
    stream.on('data', (piece) => { text += piece; });
    const until = async (wanted) => {
        for (let attempt = 0; attempt < 300 && !text.includes(wanted); attempt++) await rest(100);
        assert.ok(text.includes(wanted), `no ${JSON.stringify(wanted)} in ${JSON.stringify(text)}`);
    };
    return { stream, until, text: () => text };
}

await core.createNamespacedPod({ namespace, body: {
    metadata: { name: 'seen-by-node' },
    spec: { containers: [{
        name: 'c', image: 'busybox', stdin: true, ports: [{ containerPort: 80 }],
        command: ['sh', '-c', 'echo begun; while read line; do echo got $line; done; sleep infinity'],
    }] },
} });
for (let attempt = 0; ; attempt++) {
    const pod = await core.readNamespacedPod({ namespace, name: 'seen-by-node' });
    if (pod.status.phase === 'Running') break;
    assert.ok(attempt < 300, 'the pod does not run');
    await rest(100);
}

// Follows the container's log.
const log = gather();
const following = await new k8s.Log(config).log(namespace, 'seen-by-node', 'c', log.stream, { follow: true });
await log.until('begun\n');
following.abort();

// Runs a command with input, and checks its output and its exit code.
const [out, errors, input] = [gather(), gather(), new PassThrough()];
const status = await new Promise((resolve, reject) => {
    new k8s.Exec(config).exec(namespace, 'seen-by-node', 'c', ['sh'], out.stream, errors.stream, input, false, resolve)
        .catch(reject);
    input.write('echo $((6*7)); echo wrong >&2; exit 3\n');
});
assert.equal(status.status, 'Failure');
assert.equal(status.details.causes[0].message, '3');
await out.until('42\n');
await errors.until('wrong\n');

// Attaches to the container's own command.
const [attached, typed] = [gather(), new PassThrough()];
const socket = await new k8s.Attach(config).attach(namespace, 'seen-by-node', 'c', attached.stream, null, typed, false);
typed.write('hello\n');
await attached.until('got hello\n');
socket.close();

// Forwards a port.
const [answer, request] = [gather(), new PassThrough()];
const forwarding = await new k8s.PortForward(config).portForward(namespace, 'seen-by-node', [80], answer.stream, null, request);
request.write('GET / HTTP/1.1\r\nHost: web\r\n\r\n');
await answer.until('no container runs behind port 80');
assert.match(answer.text(), /^HTTP\/1.1 200 OK\r\n/);
forwarding.close();
console.log('ok');
process.exit(0);
