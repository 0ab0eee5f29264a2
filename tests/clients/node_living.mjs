// Tests the official Node client with running pods, in the cluster in KUBECONFIG: logs, commands, attaching, files,
// ports, usage; and watches and informers, which watch again when the server ends a watch.
//
// usage: KUBECONFIG=... node tests/clients/node_living.mjs NODE_FOLDER      NODE_FOLDER: the folder of node_modules

import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { config, eventually, k8s, refused, step } from './node.mjs';

const namespace = 'node-living';
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const as = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

/** A stream that stores the text written to it. */
class Kept extends PassThrough {
    text = '';
    constructor() {
        super();
        this.on('data', (piece) => (this.text += piece));
    }
}

async function pod() {
    await eventually('the service account', async () => {
        const { items } = await core.listNamespacedServiceAccount({ namespace });
        return items.length > 0;
    });
    const body = {
        metadata: { name: 'web', labels: { app: 'web' }, annotations: { 'simulate.holdfast.dev/answer': 'Hello World' } },
        spec: {
            containers: [
                {
                    name: 'c',
                    image: 'busybox',
                    stdin: true,
                    command: [
                        'sh',
                        '-c',
                        'echo begun; echo kept > /tmp/test.txt; while read line; do echo got $line; done; sleep infinity',
                    ],
                    ports: [{ containerPort: 8080 }],
                },
            ],
        },
    };
    await core.createNamespacedPod({ namespace, body });
    await eventually('the pod', async () => {
        const { status } = await core.readNamespacedPod({ name: 'web', namespace });
        return status.phase === 'Running';
    });
}

async function logs() {
    await eventually('the log', async () => (await core.readNamespacedPodLog({ name: 'web', namespace })) === 'begun\n');
    const followed = new Kept();
    const control = await new k8s.Log(config).log(namespace, 'web', 'c', followed, { follow: true, tailLines: 1 });
    await eventually('the followed log', () => followed.text === 'begun\n');
    control.abort();
    await assert.rejects(new k8s.Log(config).log(namespace, 'web', 'none', new Kept()), { code: 400 });
    await refused(404, 'NotFound', () => core.readNamespacedPodLog({ name: 'none', namespace }));
}

/** Runs a command. Returns its output and the Status that the server sends at its end. */
async function run(command, input) {
    const [out, err] = [new Kept(), new Kept()];
    let status;
    const exec = new k8s.Exec(config);
    await exec.exec(namespace, 'web', 'c', command, out, err, input ?? null, false, (result) => (status = result));
    await eventually(`the end of ${command}`, () => status);
    return { out: out.text, err: err.text, status };
}

async function commands() {
    const result = await run(['sh', '-c', 'echo a; echo b >&2']);
    assert.deepEqual([result.out, result.err, result.status.status], ['a\n', 'b\n', 'Success']);
    const failed = await run(['sh', '-c', 'exit 3']);
    assert.equal(failed.status.status, 'Failure');
    assert.deepEqual(failed.status.details.causes, [{ reason: 'ExitCode', message: '3' }]);
    const input = new PassThrough();
    input.end('echo $((6*7))\nexit 5\n');
    const shell = await run(['sh'], input);
    assert.deepEqual([shell.out, shell.status.details.causes[0].message], ['42\n', '5']);
    const exec = new k8s.Exec(config);
    await assert.rejects(exec.exec(namespace, 'none', 'c', 'true', new Kept(), null, null, false));
}

async function attachment() {
    const [out, input] = [new Kept(), new PassThrough()];
    const connection = await new k8s.Attach(config).attach(namespace, 'web', 'c', out, null, input, false);
    input.write('hello\n');
    await eventually('the answer', () => out.text.includes('got hello\n'));
    connection.close();
}

// This version of the client cannot copy files from a pod of any cluster: it requests a compressed archive, and reads
// the answer as an uncompressed archive.
async function files() {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'node-living-'));
    await writeFile(path.join(folder, 'sent.txt'), 'sent\n');
    await new k8s.Cp(config).cpToPod(namespace, 'web', 'c', folder, '/tmp');
    await eventually('the file', async () => (await run(['cat', '/tmp/sent.txt'])).out === 'sent\n');
    assert.equal((await run(['cat', '/tmp/test.txt'])).out, 'kept\n');
}

async function ports() {
    const forward = new k8s.PortForward(config);
    const listener = net.createServer((socket) => {
        forward.portForward(namespace, 'web', [8080], socket, null, socket).catch(() => socket.destroy());
    });
    await new Promise((resolve) => listener.listen(0, '127.0.0.1', resolve));
    const answer = await new Promise((resolve, reject) => {
        let text = '';
        const socket = net.createConnection(listener.address().port, '127.0.0.1');
        socket.on('error', reject);
        socket.on('data', (piece) => {
            text += piece;
            if (text.includes('Hello World')) {
                socket.end();
                resolve(text);
            }
        });
        socket.on('end', () => resolve(text));
        socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
    });
    listener.close();
    assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(answer, /Hello World/);
}

async function usage() {
    const metrics = new k8s.Metrics(config);
    const used = await eventually('the usage of the pod', async () =>
        (await metrics.getPodMetrics(namespace)).items.find((item) => item.metadata.name === 'web'),
    );
    assert.deepEqual(used.containers.map((container) => container.name), ['c']);
    const nodes = await eventually('the usage of a node', async () => (await metrics.getNodeMetrics()).items[0]);
    assert.match(nodes.usage.memory, /^[1-9]/);
    const [node] = await k8s.topNodes(core);
    assert.ok(node.CPU.Capacity > 0, String(node.CPU.Capacity));
    const pods = await k8s.topPods(core, metrics, namespace);
    assert.deepEqual(pods.map((found) => found.Pod.metadata.name), ['web']);
    const health = new k8s.Health(config);
    assert.deepEqual([await health.readyz({}), await health.livez({})], [true, true]);
}

// Patches a namespace in every format, like the client's own tests.
async function patches() {
    const patch = (body, strategy, options = {}) =>
        core.patchNamespace({ name: namespace, body, ...options }, as(strategy));
    const merged = await patch({ metadata: { labels: { merged: 'yes' } } }, k8s.PatchStrategy.MergePatch);
    assert.equal(merged.metadata.labels.merged, 'yes');
    const listed = await patch(
        [{ op: 'replace', path: '/metadata/labels/merged', value: 'no' }],
        k8s.PatchStrategy.JsonPatch,
    );
    assert.equal(listed.metadata.labels.merged, 'no');
    const strategic = await patch({ metadata: { labels: { merged: null } } }, k8s.PatchStrategy.StrategicMergePatch);
    assert.equal(strategic.metadata.labels.merged, undefined);
    const wanted = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels: { applied: 'yes' } } };
    const applied = await patch(wanted, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'node', force: true });
    assert.equal(applied.metadata.labels.applied, 'yes');
    const managers = applied.metadata.managedFields.filter((entry) => entry.operation === 'Apply');
    assert.deepEqual(managers.map((entry) => entry.manager), ['node']);
    const again = await objects.patch(
        { ...wanted, metadata: { name: namespace, labels: { applied: 'again' } } },
        undefined,
        undefined,
        'other',
        true,
        k8s.PatchStrategy.ServerSideApply,
    );
    assert.equal(again.metadata.labels.applied, 'again');
    await refused(409, 'Conflict', () => patch(wanted, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'node' }));
}

async function watching() {
    const seen = [];
    let ended;
    const end = new Promise((resolve) => (ended = resolve));
    const { metadata } = await core.listNamespacedPod({ namespace });
    const control = await new k8s.Watch(config).watch(
        `/api/v1/namespaces/${namespace}/pods`,
        { resourceVersion: metadata.resourceVersion, allowWatchBookmarks: true, timeoutSeconds: 60 },
        (type, object) => seen.push(`${type} ${object.metadata?.name}`),
        ended,
    );
    const body = { metadata: { name: 'seen' }, spec: { containers: [{ name: 'c', image: 'i' }] } };
    await core.createNamespacedPod({ namespace, body });
    await core.deleteNamespacedPod({ name: 'seen', namespace, gracePeriodSeconds: 0 });
    await eventually('the end of the pod', () => seen.includes('DELETED seen'));
    assert.equal(seen[0], 'ADDED seen');
    control.abort();
    await end;
}

// The server ends each watch of this informer after a second. The informer must report each later event exactly once.
async function informer() {
    const labels = { set: 'informer' };
    const labelSelector = 'set=informer';
    const create = (name) => core.createNamespacedConfigMap({ namespace, body: { metadata: { name, labels } } });
    const watch = new k8s.Watch(config);
    const briefly = {
        watch: (path, query, ...rest) => watch.watch(path, { ...query, timeoutSeconds: 1 }, ...rest),
    };
    const list = () => core.listNamespacedConfigMap({ namespace, labelSelector });
    const informer = new k8s.ListWatch(
        `/api/v1/namespaces/${namespace}/configmaps`, briefly, list, false, labelSelector,
    );
    const [added, errors] = [[], []];
    let connections = 0;
    informer.on('add', (object) => added.push(object.metadata.name));
    informer.on('connect', () => connections++);
    informer.on('error', (error) => errors.push(error));
    await informer.start();
    await create('one');
    await eventually('the first', () => added.includes('one'));
    const before = connections;
    await eventually('another watch', () => connections > before + 1);
    await create('two');
    await eventually('the second', () => added.includes('two'));
    assert.deepEqual([added, errors], [['one', 'two'], []]);
    await informer.stop();
    assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name).sort(), ['one', 'two']);
}

// Applies the objects of a YAML file like the client's own example: reads each object, and creates or patches it.
async function documents() {
    const text = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: ${namespace}}
data: {a: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: ${namespace}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c, image: pause, resources: {requests: {memory: 1024Mi}}}]}
`;
    for (const round of [1, 2]) {
        for (const document of k8s.loadAllYaml(text)) {
            try {
                await objects.read(document);
                await objects.patch(document);
            } catch (error) {
                assert.equal(error.code, 404, String(error));
                assert.equal(round, 1);
                await objects.create(document);
            }
        }
    }
    const shop = await eventually('the Deployment', async () => {
        const found = await apps.readNamespacedDeployment({ name: 'shop', namespace });
        return found.status.readyReplicas === 2 && found;
    });
    assert.equal(shop.metadata.generation, 1, 'a patch without a change increments the generation');
    const list = await objects.list('apps/v1', 'Deployment', namespace);
    assert.deepEqual(list.items.map((found) => found.metadata.name), ['shop']);
    await objects.delete({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'shop', namespace } });
}

try {
    await step('create namespace', () => core.createNamespace({ body: { metadata: { name: namespace } } }));
    await step('pod', pod);
    await step('logs', logs);
    await step('commands', commands);
    await step('attachment', attachment);
    await step('files', files);
    await step('ports', ports);
    await step('usage', usage);
    await step('patches', patches);
    await step('watching', watching);
    await step('informer', informer);
    await step('documents', documents);
} catch {
    process.exit(1);
}
process.exit(0);
