// Tests the official Node client against the cluster in KUBECONFIG.
//
// usage: KUBECONFIG=... node tests/clients/node_client.mjs NODE_FOLDER      NODE_FOLDER: the folder of node_modules

import assert from 'node:assert/strict';
import { config, k8s, refused, step } from './node.mjs';

const namespace = 'node-client';
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const configMap = (name, data, labels) => ({ metadata: { name, labels }, data });

async function configMaps() {
    const made = await core.createNamespacedConfigMap({ namespace, body: configMap('first', { a: '1' }) });
    assert.deepEqual(made.data, { a: '1' });
    made.data.b = '2';
    const replaced = await core.replaceNamespacedConfigMap({ name: 'first', namespace, body: made });
    assert.notEqual(replaced.metadata.resourceVersion, made.metadata.resourceVersion);
    const patched = await core.patchNamespacedConfigMap(
        { name: 'first', namespace, body: { data: { a: null } } },
        k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
    );
    assert.deepEqual(patched.data, { b: '2' });
    const read = await core.readNamespacedConfigMap({ name: 'first', namespace });
    assert.deepEqual(read.data, { b: '2' });
    const list = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=first' });
    assert.deepEqual(list.items.map((item) => item.metadata.name), ['first']);
    await core.deleteNamespacedConfigMap({ name: 'first', namespace });
}

async function deployments() {
    const labels = { app: 'web' };
    const body = {
        metadata: { name: 'web', labels },
        spec: {
            selector: { matchLabels: labels },
            template: { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'web:1' }] } },
        },
    };
    const made = await apps.createNamespacedDeployment({ namespace, body });
    assert.equal(made.spec.replicas, 1);
    assert.equal(made.spec.strategy.type, 'RollingUpdate');
    const patched = await apps.patchNamespacedDeployment(
        {
            name: 'web',
            namespace,
            body: { spec: { template: { spec: { containers: [{ name: 'side', image: 'side:1' }] } } } },
        },
        k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.StrategicMergePatch),
    );
    assert.deepEqual(patched.spec.template.spec.containers.map((c) => c.name).sort(), ['side', 'web']);
    const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace });
    assert.equal(scale.spec.replicas, 1);
    await apps.deleteNamespacedDeployment({ name: 'web', namespace });
}

async function anyObject() {
    const spec = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'any', namespace }, stringData: { a: 'b' } };
    const made = await objects.create(spec);
    assert.equal(made.data.a, Buffer.from('b').toString('base64'));
    const read = await objects.read({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'any', namespace } });
    assert.equal(read.metadata.uid, made.metadata.uid);
    await objects.delete(spec);
}

// An informer lists the objects, and then watches them. It must report each object and each change once.
async function informer() {
    const labelSelector = 'set=informer';
    const labels = { set: 'informer' };
    await core.createNamespacedConfigMap({ namespace, body: configMap('before', { n: '0' }, labels) });
    const informer = k8s.makeInformer(
        config,
        `/api/v1/namespaces/${namespace}/configmaps`,
        () => core.listNamespacedConfigMap({ namespace, labelSelector }),
        labelSelector,
    );
    const seen = [];
    let finished;
    const done = new Promise((resolve, reject) => {
        finished = resolve;
        informer.on('error', reject);
        setTimeout(() => reject(new Error(`the informer reported only ${seen}`)), 20_000).unref();
    });
    for (const verb of ['add', 'update', 'delete']) {
        informer.on(verb, (object) => {
            seen.push(`${verb} ${object.metadata.name}`);
            if (verb === 'delete') finished();
        });
    }
    await informer.start();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await core.createNamespacedConfigMap({ namespace, body: configMap('later', { n: '1' }, labels) });
    await core.patchNamespacedConfigMap(
        { name: 'later', namespace, body: { data: { n: '2' } } },
        k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
    );
    await core.deleteNamespacedConfigMap({ name: 'before', namespace });
    await done;
    await informer.stop();
    assert.deepEqual(seen, ['add before', 'add later', 'update later', 'delete before']);
}

async function errors() {
    const missing = await refused(404, 'NotFound', () => core.readNamespacedConfigMap({ name: 'none', namespace }));
    assert.equal(missing.message, 'configmaps "none" not found');
    const body = configMap('twice', {});
    const made = await core.createNamespacedConfigMap({ namespace, body });
    await refused(409, 'AlreadyExists', () => core.createNamespacedConfigMap({ namespace, body }));
    made.data = { changed: 'yes' };
    await core.replaceNamespacedConfigMap({ name: 'twice', namespace, body: made });
    made.data = { changed: 'again' };
    await refused(409, 'Conflict', () => core.replaceNamespacedConfigMap({ name: 'twice', namespace, body: made }));
    const invalid = await refused(422, 'Invalid', () =>
        core.createNamespacedConfigMap({ namespace, body: configMap('Bad_Name', {}) }),
    );
    assert.equal(invalid.details.causes[0].field, 'metadata.name');
}

try {
    await step('create namespace', () => core.createNamespace({ body: { metadata: { name: namespace } } }));
    await step('config maps', configMaps);
    await step('deployments', deployments);
    await step('any object', anyObject);
    await step('informer', informer);
    await step('errors', errors);
    await step('delete namespace', () => core.deleteNamespace({ name: namespace }));
} catch {
    await core.deleteNamespace({ name: namespace }).catch(() => {});
    process.exit(1);
}
process.exit(0);
