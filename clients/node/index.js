// Kubernetes clusters for tests: one server for the test run, and a fork of the prepared cluster for every test.

import { spawn } from 'node:child_process'
import { mkdtempSync, openSync, readFileSync, closeSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request as httpsRequest } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const FORKS = '/holdfast/v1/forks'
const IDLE_SECONDS = 3600
const START_MS_MAX = 60_000
const STOP_MS_MAX = 10_000
const REQUEST_MS_MAX = 60_000

Symbol.asyncDispose ??= Symbol('Symbol.asyncDispose')

export class HoldfastError extends Error {
  constructor(message, code = 0, status = {}) {
    super(message)
    this.name = 'HoldfastError'
    this.code = code
    this.status = status
  }
}

/** Sends requests to one server, over connections that stay open. */
class Wire {
  constructor(ca, cert, key) {
    this.agent = new Agent({ keepAlive: true, ca, cert, key })
  }

  async send(method, url, body, headers) {
    for (;;) {
      const { again, ...answer } = await this.once(method, url, body, headers)
      if (!again) return answer
    }
  }

  once(method, url, body, headers) {
    return new Promise((resolve, reject) => {
      const sent = httpsRequest(url, { method, headers, agent: this.agent, timeout: REQUEST_MS_MAX }, response => {
        const pieces = []
        response.on('data', piece => pieces.push(piece))
        response.on('end', () => resolve({ code: response.statusCode, text: Buffer.concat(pieces).toString() }))
        response.on('error', reject)
      })
      sent.on('timeout', () => sent.destroy(new HoldfastError(`${method} ${url}: the server did not answer in time`)))
      // The server may close a kept connection just before a request is sent on it. Then the server has not received
      // the request, and the request can be sent again.
      sent.on('error', error =>
        sent.reusedSocket && error.code === 'ECONNRESET' ? resolve({ again: true }) : reject(error)
      )
      sent.end(body)
    })
  }
}

export class Cluster {
  #shared
  #file
  #deleted = false

  constructor(shared, url, { name = '', version = 0, parent } = {}) {
    this.#shared = shared
    this.url = url
    this.ca = shared.ca
    this.cert = shared.cert
    this.key = shared.key
    this.name = name
    this.version = version
    this.parent = parent
  }

  async fork({ at, idleSeconds = IDLE_SECONDS } = {}) {
    const made = await this.request('POST', FORKS, { at, idleSeconds })
    const url = this.#shared.url + made.path
    return new Cluster(this.#shared, url, { name: made.name, version: made.version, parent: this })
  }

  async delete() {
    if (!this.parent) throw new HoldfastError("only a fork can be deleted: the server's cluster ends with the server")
    if (this.#deleted) return
    this.#deleted = true
    if (this.#file) rmSync(this.#file, { force: true })
    try {
      await this.parent.request('DELETE', `${FORKS}/${this.name}`)
    } catch (error) {
      // The fork has already ended, because it was idle for too long or because its parent has ended.
      if (error.code !== 404) throw error
    }
  }

  at(moment) {
    return `${this.url}/at/${encodeURIComponent(moment)}`
  }

  async request(method, path, body, { headers = {}, contentType = 'application/json' } = {}) {
    const sent = { accept: 'application/json', ...headers }
    let text
    if (body !== undefined) {
      text = typeof body === 'string' ? body : JSON.stringify(body)
      sent['content-type'] ??= contentType
      sent['content-length'] = Buffer.byteLength(text)
    }
    const answer = await this.#shared.wire.send(method, this.url + path, text, sent)
    const said = parsed(answer.text)
    if (answer.code >= 400) {
      const status = typeof said === 'object' && said ? said : {}
      throw new HoldfastError(`${method} ${path}: ${status.message ?? answer.text.slice(0, 200)}`, answer.code, status)
    }
    return said
  }

  get kubeconfig() {
    const data = text => Buffer.from(text).toString('base64')
    return {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'holdfast', cluster: { server: this.url, 'certificate-authority-data': data(this.ca) } }],
      users: [
        { name: 'admin', user: { 'client-certificate-data': data(this.cert), 'client-key-data': data(this.key) } }
      ],
      contexts: [{ name: 'holdfast', context: { cluster: 'holdfast', user: 'admin' } }],
      'current-context': 'holdfast'
    }
  }

  get kubeconfigFile() {
    if (!this.#file) {
      const file = join(this.#shared.folder, `${this.name || 'cluster'}.kubeconfig`)
      // The kubeconfig is written as JSON, because every JSON text is also YAML.
      writeFileSync(file, JSON.stringify(this.kubeconfig), { mode: 0o600 })
      this.#file = file
    }
    return this.#file
  }

  get env() {
    return { ...process.env, KUBECONFIG: this.kubeconfigFile, HOLDFAST_URL: this.url, USE_EXISTING_CLUSTER: 'true' }
  }

  async [Symbol.asyncDispose]() {
    if (this.parent) await this.delete()
  }
}

export class Server {
  #process
  #folder
  #ended

  /** Internal. Use `Server.start` to start a server. */
  constructor(process, folder, ended, cluster) {
    this.#process = process
    this.#folder = folder
    this.#ended = ended
    this.cluster = cluster
  }

  static async start({ binary = process.env.HOLDFAST_BINARY || 'holdfast', from, args = [] } = {}) {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-testing-'))
    const errors = join(folder, 'stderr')
    const file = openSync(errors, 'w', 0o600)
    const source = from === undefined ? [] : ['--from', from]
    // The server ends when its standard input is closed, which also happens when this process ends.
    const child = spawn(binary, ['run', '--for-parent', ...args, ...source], { stdio: ['pipe', 'pipe', file] })
    closeSync(file)
    const ended = new Promise(resolve => {
      child.once('exit', resolve)
      child.once('error', resolve)
    })
    try {
      const access = JSON.parse(await firstLine(child, ended, binary, errors))
      const pem = name => readFileSync(access[name], 'utf8')
      const [ca, cert, key] = [pem('certificateAuthority'), pem('clientCertificate'), pem('clientKey')]
      const shared = { url: access.url, ca, cert, key, folder, wire: new Wire(ca, cert, key) }
      // The server must not keep this process running after the tests. When this process ends, the server ends too.
      for (const handle of [child, child.stdin, child.stdout]) handle.unref()
      process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
      const server = new Server(child, folder, ended, new Cluster(shared, access.url))
      server.wire = shared.wire
      return server
    } catch (error) {
      child.kill()
      rmSync(folder, { recursive: true, force: true })
      throw error
    }
  }

  get pid() {
    return this.#process.pid
  }

  async stop() {
    this.wire.agent.destroy()
    this.#process.ref()
    this.#process.stdin.end()
    const late = setTimeout(() => this.#process.kill('SIGKILL'), STOP_MS_MAX)
    await this.#ended
    clearTimeout(late)
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async [Symbol.asyncDispose]() {
    await this.stop()
  }
}

export function prepared(prepare = () => {}, options = {}) {
  let started
  const start = async () => {
    const server = await Server.start(options)
    try {
      await prepare(server.cluster)
    } catch (error) {
      await server.stop()
      throw error
    }
    return server
  }
  const fork = async forkOptions => {
    started ??= start()
    return (await started).cluster.fork(forkOptions)
  }
  return {
    fork,
    with: test => async () => {
      const cluster = await fork()
      try {
        return await test(cluster)
      } finally {
        await cluster.delete()
      }
    },
    stop: async () => {
      const server = started && (await started.catch(() => undefined))
      started = undefined
      await server?.stop()
    }
  }
}

async function firstLine(child, ended, binary, errors) {
  const lines = createInterface({ input: child.stdout })
  let late
  const line = new Promise(resolve => lines.once('line', resolve))
  const tooLate = new Promise(resolve => (late = setTimeout(resolve, START_MS_MAX, undefined)))
  const first = await Promise.race([line, ended, tooLate])
  clearTimeout(late)
  lines.close()
  if (typeof first === 'string') return first
  if (first instanceof Error && first.code === 'ENOENT') {
    throw new HoldfastError(
      `there is no program ${binary}: put holdfast into the PATH, or name it with the option binary or HOLDFAST_BINARY`
    )
  }
  const said = readFileSync(errors, 'utf8').trim()
  const why = said || (first === undefined ? 'it was not ready in time' : 'it ended without an error message')
  throw new HoldfastError(`${binary} did not start: ${why}`)
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
