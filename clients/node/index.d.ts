/** The server could not be started, or it refused a request. Then `status` is the Status in its answer. */
export class HoldfastError extends Error {
  /** The HTTP status of the server's answer; 0 if there was no answer. */
  readonly code: number
  readonly status: { reason?: string; message?: string; [field: string]: unknown }
}

export interface ForkOptions {
  /** The fork begins with the cluster's state at a version (`"42"`), a time or a duration before now (`"-15m"`). */
  at?: string
  /** The fork ends by itself after this time without requests and watches. The default is an hour. */
  idleSeconds?: number
}

export interface RequestOptions {
  headers?: Record<string, string>
  contentType?: string
}

/** One cluster, with its address, credentials and forks. Every client that accepts a URL or a kubeconfig can use it. */
export class Cluster {
  /** The URL, without a slash at the end, such as `https://127.0.0.1:6443/forks/NAME`. */
  readonly url: string
  /**
   * The certificate of the server's certificate authority, in PEM. `cert` and `key` are the certificate and the private
   * key of the administrator, in PEM.
   */
  readonly ca: string
  readonly cert: string
  readonly key: string
  /** The name of a fork; `version` is the last version that the fork has in common with its parent. */
  readonly name: string
  readonly version: number
  readonly parent?: Cluster
  /** A kubeconfig without files, for `KubeConfig.loadFromOptions` or `loadFromString(JSON.stringify(...))`. */
  readonly kubeconfig: Record<string, unknown>
  /** The path of a kubeconfig file, which the first read of this property writes. */
  readonly kubeconfigFile: string
  /** The environment of this process, with variables by which programs find this cluster. */
  readonly env: Record<string, string | undefined>
  /** Makes another cluster that begins with this cluster's state. From then on the two clusters are independent. */
  fork(options?: ForkOptions): Promise<Cluster>
  /** Ends this fork: its watches end, and requests to it get 404. Ending a fork twice has no effect. */
  delete(): Promise<void>
  /** The URL at which any client can read this cluster as it was at a version, a time or a duration before now. */
  at(moment: string): string
  /** Sends a request as the administrator, and returns the JSON of the answer. */
  request(method: string, path: string, body?: unknown, options?: RequestOptions): Promise<any>
  /** Ends this fork. `await using` calls this method. */
  [Symbol.asyncDispose](): Promise<void>
}

export interface ServerOptions {
  /** The program to run. The default is the program in `HOLDFAST_BINARY`, or else `holdfast` in the PATH. */
  binary?: string
  /** A data folder. The cluster begins with the state of the cluster in this folder. */
  from?: string
  /** More arguments for the command line of the server. */
  args?: string[]
}

/**
 * A server that this process starts. The server ends at the latest when this process ends, even if this process is
 * killed.
 */
export class Server {
  static start(options?: ServerOptions): Promise<Server>
  /** The server's own cluster. */
  readonly cluster: Cluster
  readonly pid: number
  /** Ends the server with all its forks, and waits for its end. */
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

export interface Prepared {
  /** Makes a cluster for one test. The first call starts the server and calls `prepare`. `delete()` ends the fork. */
  fork(options?: ForkOptions): Promise<Cluster>
  /** Runs `test` with a fork, which ends with the test: `it('works', clusters.with(async cluster => { ... }))`. */
  with<T>(test: (cluster: Cluster) => Promise<T> | T): () => Promise<T>
  /** Ends the server. Without this call the server ends with the process. */
  stop(): Promise<void>
}

/** Clusters for the tests of a file. Each of them begins with the objects that `prepare` has created. */
export function prepared(prepare?: (cluster: Cluster) => Promise<void> | void, options?: ServerOptions): Prepared
