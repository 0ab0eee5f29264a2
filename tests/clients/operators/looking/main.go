// Tests the streams of containers in the cluster in KUBECONFIG with client-go: logs, commands, attaching and forwarded
// ports, over SPDY and over WebSockets.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

const namespace = "default"

type looker struct {
	config  *rest.Config
	clients *kubernetes.Clientset
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	clients, err := kubernetes.NewForConfig(config)
	check(err)
	l := looker{config, clients}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	l.run(ctx)
	l.logs(ctx)
	for _, protocol := range []string{"SPDY", "WebSocket"} {
		l.commands(ctx, protocol)
		l.attach(ctx, protocol)
		l.ports(ctx, protocol)
		log.Printf("ok %s", protocol)
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func expect(holds bool, format string, args ...any) {
	if !holds {
		log.Panicf(format, args...)
	}
}

func (l *looker) run(ctx context.Context) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "looked-at"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "busybox", Stdin: true,
			Command: []string{"sh", "-c", "echo begun; while read line; do echo got $line; done; sleep infinity"},
			Ports:   []corev1.ContainerPort{{ContainerPort: 80}},
		}}},
	}
	pods := l.clients.CoreV1().Pods(namespace)
	_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	check(err)
	check(wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && found.Status.Phase == corev1.PodRunning, err
	}))
}

func (l *looker) logs(ctx context.Context) {
	stream, err := l.clients.CoreV1().Pods(namespace).GetLogs("looked-at", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	check(err)
	defer stream.Close()
	line, err := bufio.NewReader(stream).ReadString('\n')
	check(err)
	expect(line == "begun\n", "the log says %q", line)
}

func (l *looker) url(subresource string, options any) *url.URL {
	request := l.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name("looked-at")
	request = request.SubResource(subresource)
	switch options := options.(type) {
	case *corev1.PodExecOptions:
		request = request.VersionedParams(options, scheme.ParameterCodec)
	case *corev1.PodAttachOptions:
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}

func (l *looker) executor(protocol string, where *url.URL) remotecommand.Executor {
	var executor remotecommand.Executor
	var err error
	if protocol == "SPDY" {
		executor, err = remotecommand.NewSPDYExecutor(l.config, http.MethodPost, where)
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(l.config, http.MethodGet, where.String())
	}
	check(err)
	return executor
}

func (l *looker) commands(ctx context.Context, protocol string) {
	run := func(input string, command ...string) (string, string, error) {
		var out, errs bytes.Buffer
		where := l.url("exec", &corev1.PodExecOptions{
			Container: "c", Command: command, Stdin: input != "", Stdout: true, Stderr: true,
		})
		options := remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}
		if input != "" {
			options.Stdin = strings.NewReader(input)
		}
		err := l.executor(protocol, where).StreamWithContext(ctx, options)
		return out.String(), errs.String(), err
	}
	out, errs, err := run("", "sh", "-c", "echo a; echo b >&2")
	check(err)
	expect(out == "a\n" && errs == "b\n", "%s: %q %q", protocol, out, errs)
	// The command receives the end of its input, and the client receives the whole output.
	much := strings.Repeat("all of it\n", 100_000)
	out, _, err = run(much, "cat")
	check(err)
	expect(out == much, "%s: received %d bytes of %d", protocol, len(out), len(much))
	_, _, err = run("", "sh", "-c", "exit 5")
	var coded exec.CodeExitError
	expect(errors.As(err, &coded) && coded.Code == 5, "%s: %v", protocol, err)

	// The command runs on a terminal with a size.
	var terminal bytes.Buffer
	where := l.url("exec", &corev1.PodExecOptions{Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true})
	check(l.executor(protocol, where).StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: strings.NewReader("echo $((6*7))\nexit\n"), Stdout: &terminal, Tty: true, TerminalSizeQueue: &sizes{left: 2},
	}))
	expect(strings.Contains(terminal.String(), "42"), "%s: %q", protocol, terminal.String())
}

type sizes struct{ left int }

func (s *sizes) Next() *remotecommand.TerminalSize {
	s.left--
	if s.left < 0 {
		return nil
	}
	return &remotecommand.TerminalSize{Width: 80, Height: uint16(24 + s.left)}
}

func (l *looker) attach(ctx context.Context, protocol string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	where := l.url("attach", &corev1.PodAttachOptions{Container: "c", Stdin: true, Stdout: true, Stderr: true})
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		options := remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: io.Discard}
		ended <- l.executor(protocol, where).StreamWithContext(ctx, options)
	}()
	_, err := fmt.Fprintf(typed, "hello by %s\n", protocol)
	check(err)
	line, err := bufio.NewReader(shown).ReadString('\n')
	check(err)
	expect(line == "got hello by "+protocol+"\n", "%q", line)
	// The client disconnects, and the container continues to run.
	cancel()
	<-ended
}

func (l *looker) ports(ctx context.Context, protocol string) {
	where := l.url("portforward", nil)
	var dialer httpstream.Dialer
	if protocol == "SPDY" {
		transport, upgrader, err := spdy.RoundTripperFor(l.config)
		check(err)
		dialer = spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, where)
	} else {
		tunnel, err := portforward.NewSPDYOverWebsocketDialer(where, l.config)
		check(err)
		dialer = tunnel
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:80", "0:81"}, stop, ready, io.Discard, io.Discard)
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		log.Panic(err)
	}
	ports, err := forwarder.GetPorts()
	check(err)
	for range 3 {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
		check(err)
		body, err := io.ReadAll(answer.Body)
		check(err)
		check(answer.Body.Close())
		expect(strings.Contains(string(body), "no container runs behind port 80"), "%s: %q", protocol, body)
	}
	// No program listens on this port. client-go then closes the whole connection.
	_, err = http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[1].Local))
	expect(err != nil, "%s: a port that the pod does not have answered", protocol)
	close(stop)
	if err := <-ended; !errors.Is(err, portforward.ErrLostConnectionToPod) {
		check(err)
	}
}
