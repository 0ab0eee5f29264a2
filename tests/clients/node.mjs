// Functions that the scripts for the official Node client share.
//
// usage: KUBECONFIG=... node tests/clients/SCRIPT.mjs NODE_FOLDER      NODE_FOLDER: the folder of node_modules

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

if (!process.env.KUBECONFIG || !process.argv[2]) {
    console.error(`usage: KUBECONFIG=... node ${path.basename(process.argv[1])} NODE_FOLDER`);
    process.exit(2);
}
const resolver = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'));
export const k8s = await import(pathToFileURL(resolver.resolve('@kubernetes/client-node')));

export const config = new k8s.KubeConfig();
config.loadFromDefault();

export async function step(name, action) {
    try {
        await action();
    } catch (error) {
        console.error(`FAILED ${name}: ${error.stack ?? error}`);
        throw error;
    }
    console.log(`ok ${name}`);
}

/** Checks that the server refuses `action` with this code and this reason. */
export async function refused(code, reason, action) {
    try {
        await action();
    } catch (error) {
        assert.equal(error.code, code, String(error));
        const body = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
        assert.equal(body.reason, reason);
        return body;
    }
    assert.fail(`the request was not refused with ${code} ${reason}`);
}

/** Repeats `ask` until its result is truthy, and returns the result. */
export async function eventually(what, ask) {
    for (let tries = 0; tries < 600; tries++) {
        const found = await ask();
        if (found) return found;
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.fail(`waited in vain for ${what}`);
}
