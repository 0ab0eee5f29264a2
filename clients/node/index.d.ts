/** What the server refused, with the `Status` that it answered; or why it could not be started. */
export class HoldfastError extends Error {
  /** The HTTP status; 0 where no answer came. */
  readonly code: number
  readonly status: { reason?: string; message?: string; [field: string]: unknown }
}

export interface ForkOptions {
  /** Begin as the cluster was at a version (`"42"`), a time or a time ago (`"-15m"`), and not as it is. */
  at?: string
  /** After how long without requests and watches the fork ends by itself. An hour, when nothing is said. */
  idleSeconds?: number
}

export interface RequestOptions {
  headers?: Record<string, string>
  contentType?: string
}

/** One cluster: how it is reached, and how it is forked. Every client works that takes a URL or a kubeconfig. */
export class Cluster {
  /** As `https://127.0.0.1:6443/forks/NAME`: without a slash at the end. */
  readonly url: string
  /** In PEM: whom to trust, and who the administrator is. */
  readonly ca: string
  readonly cert: string
  readonly key: string
  /** Of a fork: its name, and the last version that it has in common with its parent. */
  readonly name: string
  readonly version: number
  readonly parent?: Cluster
  /** A kubeconfig that needs no other file, as `KubeConfig.loadFromOptions` or `loadFromString(JSON.stringify(...))` take it. */
  readonly kubeconfig: Record<string, unknown>
  /** The path of a kubeconfig file, written when it is first asked for. */
  readonly kubeconfigFile: string
  /** The environment of this process, in which programs find this cluster. */
  readonly env: Record<string, string | undefined>
  /** Another cluster that begins as this one is; from then on the two see nothing of each other. */
  fork(options?: ForkOptions): Promise<Cluster>
  /** Ends a fork: its watches end, and requests to it find nothing. Ending it twice does nothing. */
  delete(): Promise<void>
  /** The URL of this cluster as it was at a version, a time or a time ago: to read, with any client. */
  at(moment: string): string
  /** Sends a request as the administrator, and gives back what the answer says in JSON. */
  request(method: string, path: string, body?: unknown, options?: RequestOptions): Promise<any>
  /** Ends a fork, as `await using` does. */
  [Symbol.asyncDispose](): Promise<void>
}

export interface ServerOptions {
  /** The program to run, when it is not the one in `HOLDFAST_BINARY`, or `holdfast` in the PATH. */
  binary?: string
  /** Begin as the cluster in this data folder is. */
  from?: string
  /** More arguments of the server. */
  args?: string[]
}

/** A server of this process: it ends with it, whatever happens. */
export class Server {
  static start(options?: ServerOptions): Promise<Server>
  /** The server's own cluster. */
  readonly cluster: Cluster
  readonly pid: number
  /** Ends the server with all its forks, and waits for it. */
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

export interface Prepared {
  /** A cluster for one test. The first call starts the server and prepares; end the fork with `delete()`. */
  fork(options?: ForkOptions): Promise<Cluster>
  /** Runs `test` with a fork, which ends with it: `it('works', clusters.with(async cluster => { ... }))`. */
  with<T>(test: (cluster: Cluster) => Promise<T> | T): () => Promise<T>
  /** Ends the server. Without it the server ends with the process. */
  stop(): Promise<void>
}

/** Clusters for the tests of a file: what `prepare` puts into one is in each of its forks. */
export function prepared(prepare?: (cluster: Cluster) => Promise<void> | void, options?: ServerOptions): Prepared
