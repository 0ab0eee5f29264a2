// Tests the Java client (fabric8) with a container: logs, commands, attaching, copying files, a forwarded port.

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.LocalPortForward;
import io.fabric8.kubernetes.client.dsl.ContainerResource;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.LogWatch;
import io.fabric8.kubernetes.client.dsl.PodResource;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

public class Looking {
    static final String COMMAND = "echo begun; while read line; do echo got $line; done; sleep infinity";

    public static void main(String[] arguments) throws Exception {
        Path folder = Files.createTempDirectory("looking");
        try (KubernetesClient client = new KubernetesClientBuilder().build()) {
            client.pods().inNamespace("default").resource(new PodBuilder()
                .withNewMetadata().withName("java").endMetadata()
                .withNewSpec().addNewContainer()
                .withName("c").withImage("busybox").withStdin(true).withCommand("sh", "-c", COMMAND)
                .addNewPort().withContainerPort(80).endPort()
                .endContainer().endSpec().build()).create();
            PodResource pod = client.pods().inNamespace("default").withName("java");
            pod.waitUntilReady(60, TimeUnit.SECONDS);
            logs(pod);
            commands(pod.inContainer("c"));
            attachment(pod.inContainer("c"));
            files(pod, folder);
            port(pod);
        }
    }

    static void logs(PodResource pod) throws Exception {
        is("begun\n", pod.inContainer("c").getLog());
        mustContain(pod.usingTimestamps().getLog(), "Z begun");
        try (LogWatch follow = pod.watchLog();
            BufferedReader lines = new BufferedReader(new InputStreamReader(follow.getOutput(), UTF_8))) {
            is("begun", lines.readLine());
        }
    }

    static void commands(ContainerResource container) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream error = new ByteArrayOutputStream();
        try (ExecWatch command = container.writingOutput(out).writingError(error)
            .exec("sh", "-c", "echo out; echo wrong >&2; exit 3")) {
            is(3, command.exitCode().get(30, TimeUnit.SECONDS));
        }
        is("out\n", out.toString(UTF_8));
        is("wrong\n", error.toString(UTF_8));

        // The command reads a long input to its end.
        out.reset();
        byte[] much = "b\na\n".repeat(20_000).getBytes(UTF_8);
        try (ExecWatch command = container.readingInput(new ByteArrayInputStream(much)).writingOutput(out)
            .exec("sh", "-c", "head -n 40000 | sort | uniq -c")) {
            is(0, command.exitCode().get(60, TimeUnit.SECONDS));
        }
        is("20000 a 20000 b", String.join(" ", out.toString(UTF_8).trim().split("\\s+")));

        // The command runs on a terminal.
        out.reset();
        try (ExecWatch terminal = container.redirectingInput().writingOutput(out).withTTY().exec("sh")) {
            terminal.resize(100, 30);
            terminal.getInput().write("echo $((6*7)); exit 5\n".getBytes(UTF_8));
            terminal.getInput().flush();
            is(5, terminal.exitCode().get(30, TimeUnit.SECONDS));
        }
        mustContain(out.toString(UTF_8), "42");
    }

    static void attachment(ContainerResource container) throws Exception {
        try (ExecWatch attached = container.redirectingInput().redirectingOutput().attach();
            BufferedReader lines = new BufferedReader(new InputStreamReader(attached.getOutput(), UTF_8))) {
            attached.getInput().write("hello\n".getBytes(UTF_8));
            attached.getInput().flush();
            String line = lines.readLine();
            // Output from before the attachment may be received first.
            is("got hello", "begun".equals(line) ? lines.readLine() : line);
        }
    }

    static void files(PodResource pod, Path folder) throws Exception {
        Path sent = Files.writeString(folder.resolve("sent"), "many lines\n".repeat(5_000));
        is(true, pod.file("/tmp/sent").upload(sent));
        Path back = folder.resolve("back");
        is(true, pod.file("/tmp/sent").copy(back));
        is(-1L, Files.mismatch(sent, back));

        Path deep = Files.createDirectories(folder.resolve("in/deep"));
        Files.writeString(deep.resolve("x"), "x\n");
        is(true, pod.dir("/tmp/in").upload(folder.resolve("in")));
        is(true, pod.dir("/tmp/in").copy(folder.resolve("out")));
        Path came = Files.walk(folder.resolve("out")).filter(Files::isRegularFile).findFirst().orElseThrow();
        is(-1L, Files.mismatch(deep.resolve("x"), came));
    }

    static void port(PodResource pod) throws Exception {
        try (LocalPortForward forward = pod.portForward(80)) {
            URI address = URI.create("http://127.0.0.1:" + forward.getLocalPort() + "/");
            for (int request = 0; request < 2; request++) {
                String answer = new String(address.toURL().openStream().readAllBytes(), UTF_8);
                mustContain(answer, "no container runs behind port 80 of pod default/java");
            }
        }
    }

    static void is(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected: " + expected + "\nfound: " + found);
        }
    }

    static void mustContain(String text, String part) {
        if (!text.contains(part)) {
            throw new AssertionError("expected to contain: " + part + "\nfound: " + text);
        }
    }
}
