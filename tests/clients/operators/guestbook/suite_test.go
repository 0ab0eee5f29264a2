package guestbook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "holdfast.dev/operators/guestbook/api/v1"
	"holdfast.dev/operators/guestbook/api/v1alpha1"
)

var (
	ctx    context.Context
	cancel context.CancelFunc
	env    *envtest.Environment
	k8s    client.Client
)

func TestGuestbooks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Guestbooks")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	ctx, cancel = context.WithCancel(context.Background())
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())

	env = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("config", "crd")},
		ErrorIfCRDPathMissing: true,
		CRDInstallOptions:     envtest.CRDInstallOptions{Scheme: scheme},
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("config", "webhook")}},
	}
	config, err := env.Start()
	Expect(err).NotTo(HaveOccurred())
	k8s, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	hooks := &env.WebhookInstallOptions
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect((&Reconciler{mgr.GetClient()}).SetupWithManager(mgr)).To(Succeed())
	Expect(SetupWebhooks(mgr)).To(Succeed())
	go func() {
		defer GinkgoRecover()
		Expect(mgr.Start(ctx)).To(Succeed())
	}()
	address := fmt.Sprintf("%s:%d", hooks.LocalServingHost, hooks.LocalServingPort)
	Eventually(func() error {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", address,
			&tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return conn.Close()
	}).WithTimeout(10 * time.Second).Should(Succeed())
})

var _ = AfterSuite(func() {
	cancel()
	Eventually(env.Stop).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())
})

func book(name string) *v1.Guestbook {
	return &v1.Guestbook{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1.GuestbookSpec{Image: "web:1", Memory: resource.MustParse("1Gi")},
	}
}

var _ = Describe("A guestbook", func() {
	It("gets defaults from a webhook", func() {
		made := book("defaults")
		Expect(k8s.Create(ctx, made)).To(Succeed())
		Expect(*made.Spec.Replicas).To(Equal(int32(1)))
	})

	It("is validated by a webhook when it is created, changed and deleted", func() {
		bad := book("bad")
		bad.Spec.Image = ""
		err := k8s.Create(ctx, bad)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(Equal(
			`admission webhook "vguestbook-v1.example.com" denied the request: spec.image is required`)))

		made := book("validated")
		made.Annotations = map[string]string{"protected": "true"}
		Expect(k8s.Create(ctx, made)).To(Succeed())
		Eventually(func() error {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
			made.Spec.Memory = resource.MustParse("2Gi")
			return k8s.Update(ctx, made)
		}).Should(MatchError(ContainSubstring("spec.memory is immutable")))
		Eventually(func() error {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
			made.Spec.Memory = resource.MustParse("1024Mi")
			return k8s.Update(ctx, made)
		}).Should(Succeed())
		Expect(k8s.Delete(ctx, made)).To(MatchError(ContainSubstring("the guestbook is protected")))
		Eventually(func() error {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
			made.Annotations = nil
			return k8s.Update(ctx, made)
		}).Should(Succeed())
		Expect(k8s.Delete(ctx, made)).To(Succeed())
	})

	It("is converted by a webhook", func() {
		size := int32(3)
		older := &v1alpha1.Guestbook{
			ObjectMeta: metav1.ObjectMeta{Name: "older", Namespace: "default"},
			Spec:       v1alpha1.GuestbookSpec{Size: &size, Image: "web:1", Memory: resource.MustParse("1Gi")},
		}
		Expect(k8s.Create(ctx, older)).To(Succeed())
		var newer v1.Guestbook
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(older), &newer)).To(Succeed())
		Expect(*newer.Spec.Replicas).To(Equal(size))
		var list v1alpha1.GuestbookList
		Expect(k8s.List(ctx, &list, client.InNamespace("default"))).To(Succeed())
		Expect(list.Items).NotTo(BeEmpty())
		for _, item := range list.Items {
			Expect(item.Spec.Size).NotTo(BeNil(), "%s", item.Name)
		}
	})

	It("has a Deployment, a status and a finalizer", func() {
		made := book("full")
		Expect(k8s.Create(ctx, made)).To(Succeed())
		key := client.ObjectKeyFromObject(made)
		var deployment appsv1.Deployment
		Eventually(func() error { return k8s.Get(ctx, key, &deployment) }).Should(Succeed())
		Expect(metav1.IsControlledBy(&deployment, made)).To(BeTrue())

		// envtest runs no controllers, so the suite writes the status that a controller would write.
		deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		Expect(k8s.Status().Update(ctx, &deployment)).To(Succeed())
		Eventually(func() bool {
			Expect(k8s.Get(ctx, key, made)).To(Succeed())
			return meta.IsStatusConditionTrue(made.Status.Conditions, "Available")
		}).Should(BeTrue())
		// The operator writes nothing once the Deployment has its desired state.
		Expect(k8s.Get(ctx, key, &deployment)).To(Succeed())
		generation := deployment.Generation
		Consistently(func() int64 {
			Expect(k8s.Get(ctx, key, &deployment)).To(Succeed())
			return deployment.Generation
		}).WithTimeout(500 * time.Millisecond).Should(Equal(generation))

		scale := &autoscalingv1.Scale{}
		Expect(k8s.SubResource("scale").Get(ctx, made, scale)).To(Succeed())
		scale.Spec.Replicas = 2
		Expect(k8s.SubResource("scale").Update(ctx, made, client.WithSubResourceBody(scale))).To(Succeed())
		Eventually(func() int32 {
			Expect(k8s.Get(ctx, key, &deployment)).To(Succeed())
			return *deployment.Spec.Replicas
		}).Should(Equal(int32(2)))

		Expect(k8s.Delete(ctx, made)).To(Succeed())
		Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, key, made)) }).Should(BeTrue())
	})
})
