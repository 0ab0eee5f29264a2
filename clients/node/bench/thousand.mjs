// Measures the cost of a thousand tests, each with its own cluster, and of as many tests in one cluster:
// `node bench/thousand.mjs`.

import { Server } from 'holdfast-testing'

const COUNT = 1000
const MAPS = '/api/v1/namespaces/default/configmaps'

const server = await Server.start()
const { cluster } = server

async function test(cluster, name) {
  await cluster.request('POST', MAPS, { metadata: { name }, data: { a: 'b' } })
  await cluster.request('GET', `${MAPS}/${name}`)
}

async function measured(what, one) {
  const [began, cpu] = [performance.now(), process.cpuUsage()]
  for (let number = 0; number < COUNT; number++) await one(number)
  const { user, system } = process.cpuUsage(cpu)
  const wall = ((performance.now() - began) / COUNT).toFixed(2)
  console.log(`${what}: ${wall} ms per test, ${((user + system) / 1000 / COUNT).toFixed(2)} ms of Node's CPU`)
}

await test(cluster, 'prepared')
await measured('one cluster for all', number => test(cluster, `number-${number}`))
await measured('a fork for every test', async () => {
  const fork = await cluster.fork()
  await test(fork, 'mine')
  await fork.delete()
})
await server.stop()
