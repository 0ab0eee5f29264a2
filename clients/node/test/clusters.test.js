// Tests the content of forks, and their isolation from each other.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { request } from 'node:https'
import { after, test } from 'node:test'
import { HoldfastError, Server, prepared } from 'holdfast-testing'

const MAPS = '/api/v1/namespaces/shop/configmaps'
const map = (name, data = {}) => ({ metadata: { name }, data })

const clusters = prepared(async cluster => {
  await cluster.request('POST', '/api/v1/namespaces', { metadata: { name: 'shop' } })
  await cluster.request('POST', MAPS, map('prices', { apple: '1' }))
})
after(() => clusters.stop())

async function names(cluster, path = MAPS) {
  const { items } = await cluster.request('GET', path)
  return items.map(item => item.metadata.name).filter(name => name !== 'kube-root-ca.crt')
}

/** The names of the objects in a watch's events, one by one, until the watch ends. */
async function* watch(cluster) {
  const { ca, cert, key } = cluster
  const response = await new Promise((resolve, reject) =>
    request(`${cluster.url}${MAPS}?watch=true`, { ca, cert, key, agent: false }, resolve).on('error', reject).end()
  )
  let rest = ''
  for await (const piece of response) {
    const lines = (rest + piece).split('\n')
    rest = lines.pop()
    for (const line of lines) yield JSON.parse(line).object.metadata.name
  }
}

for (const turn of [1, 2]) {
  test(
    `a test sees no objects of another test (${turn})`,
    clusters.with(async cluster => {
      assert.deepEqual(await names(cluster), ['prices'])
      await cluster.request('POST', MAPS, map('mine'))
      await cluster.request('DELETE', `${MAPS}/prices`)
      assert.deepEqual(await names(cluster), ['mine'])
    })
  )
}

test(
  'a parent and its fork do not see each other\'s objects',
  clusters.with(async parent => {
    const fork = await parent.fork()
    const [ofParent, ofFork] = [watch(parent), watch(fork)]
    const next = async events => {
      for await (const name of { [Symbol.asyncIterator]: () => events }) {
        if (!['kube-root-ca.crt', 'prices'].includes(name)) return name
      }
    }
    const first = [next(ofParent), next(ofFork)]
    await fork.request('POST', MAPS, map('in-the-fork'))
    await parent.request('POST', MAPS, map('in-the-parent'))
    assert.deepEqual(await Promise.all(first), ['in-the-parent', 'in-the-fork'])
    assert.deepEqual(await names(parent), ['in-the-parent', 'prices'])
    assert.deepEqual(await names(fork), ['in-the-fork', 'prices'])
    await fork.delete()
    assert.equal((await ofFork.next()).done, true, 'the watch of the deleted fork did not end')
    await assert.rejects(fork.request('GET', MAPS), { code: 404 })
    await fork.delete()
  })
)

test(
  'the past can be read and forked',
  clusters.with(async cluster => {
    await cluster.request('POST', MAPS, map('new'))
    const { metadata } = await cluster.request('GET', MAPS)
    await cluster.request('DELETE', `${MAPS}/new`)
    const past = cluster.at(metadata.resourceVersion).slice(cluster.url.length)
    assert.deepEqual(await names(cluster, past + MAPS), ['new', 'prices'])
    assert.deepEqual(await names(cluster, `/at/${cluster.version}${MAPS}`), ['prices'])
    const again = await cluster.fork({ at: metadata.resourceVersion })
    assert.deepEqual(await names(again), ['new', 'prices'])
  })
)

test('fifty forks at once do not see each other\'s objects', async () => {
  const one = async number =>
    clusters.with(async cluster => {
      await cluster.request('POST', MAPS, map('mine', { number: `${number}` }))
      assert.equal((await cluster.request('GET', `${MAPS}/mine`)).data.number, `${number}`)
      assert.deepEqual(await names(cluster), ['mine', 'prices'])
    })()
  await Promise.all(Array.from({ length: 50 }, (_, number) => one(number)))
})

test(
  'errors contain the answer of the server',
  clusters.with(async cluster => {
    await assert.rejects(
      cluster.request('GET', MAPS, undefined, { headers: { 'impersonate-user': 'jane' } }),
      error => error instanceof HoldfastError && error.code === 403 && error.status.reason === 'Forbidden'
    )
    await assert.rejects(cluster.request('POST', MAPS, '{'), { code: 400 })
  })
)

test(
  'the first read writes a kubeconfig file, and the end of the fork deletes it',
  clusters.with(async cluster => {
    const { kubeconfigFile, env } = cluster
    assert.deepEqual(JSON.parse(readFileSync(kubeconfigFile, 'utf8')), cluster.kubeconfig)
    assert.equal(env.KUBECONFIG, kubeconfigFile)
    await cluster.delete()
    assert.equal(existsSync(kubeconfigFile), false)
  })
)

test(
  'the Kubernetes client works in a fork',
  { skip: !process.env.HOLDFAST_NODE_CLIENT && 'HOLDFAST_NODE_CLIENT does not name @kubernetes/client-node' },
  clusters.with(async cluster => {
    const { KubeConfig, CoreV1Api } = await import(process.env.HOLDFAST_NODE_CLIENT)
    const config = new KubeConfig()
    config.loadFromString(JSON.stringify(cluster.kubeconfig))
    const core = config.makeApiClient(CoreV1Api)
    await core.createNamespacedConfigMap({ namespace: 'shop', body: map('by-the-client') })
    const { items } = await core.listNamespacedConfigMap({ namespace: 'shop' })
    assert.ok(items.some(item => item.metadata.name === 'by-the-client'))
    assert.deepEqual(await names(cluster), ['by-the-client', 'prices'])
  })
)

test('a server ends when it is stopped, and when the process that started it ends', async () => {
  const server = await Server.start()
  process.kill(server.pid, 0)
  await server.stop()
  assert.throws(() => process.kill(server.pid, 0))
  const program = `
    import { Server } from 'holdfast-testing'
    const server = await Server.start()
    const fork = await server.cluster.fork()
    await fork.request('GET', '/api/v1/namespaces')
    console.log(server.pid)`
  const left = spawnSync(process.execPath, ['--input-type=module', '-e', program], { cwd: import.meta.dirname ?? '.', encoding: 'utf8' })
  assert.equal(left.status, 0, left.stderr)
  const pid = Number(left.stdout)
  const deadline = Date.now() + 30_000
  for (;;) {
    try {
      process.kill(pid, 0)
    } catch {
      break
    }
    assert.ok(Date.now() < deadline, 'the server did not end with its process')
    await new Promise(resolve => setTimeout(resolve, 20))
  }
})

test('a server that cannot start says why', async () => {
  await assert.rejects(Server.start({ args: ['--no-such-option'] }), /--no-such-option/)
  await assert.rejects(Server.start({ binary: '/nowhere/holdfast' }), /there is no program/)
})
