// Package kubernetes_test holds the example for Kubernetes to the types of its API, and to what Spillway asks.
package kubernetes_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature P3, promise P3: a pod that is stopped has more time than the router, and that more than the handlers. Each
// field of the example is one of its API.
func TestExample(t *testing.T) {
	text := testkit.Must(os.ReadFile("../../../examples/kubernetes/shop.yaml"))
	pods, services, kinds := map[string]corev1.PodTemplateSpec{}, []corev1.Service{}, map[string]int{}
	for _, document := range bytes.Split(text, []byte("\n---\n"))[1:] {
		kind := read[metav1.TypeMeta](t, document, false)
		switch kinds[kind.Kind]++; kind.APIVersion + " " + kind.Kind {
		case "apps/v1 Deployment":
			d := read[appsv1.Deployment](t, document, true)
			pods[d.Name] = d.Spec.Template
			selects(t, d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template)
		case "v1 Service":
			services = append(services, read[corev1.Service](t, document, true))
		case "policy/v1 PodDisruptionBudget":
			b := read[policyv1.PodDisruptionBudget](t, document, true)
			selects(t, b.Name, b.Spec.Selector.MatchLabels, pods[b.Name])
		case "networking.k8s.io/v1 Ingress":
			to := read[networkingv1.Ingress](t, document, true).Spec.Rules[0].HTTP.Paths[0].Backend.Service
			testkit.Check(t, to.Name == services[0].Name && to.Port.Name == services[0].Spec.Ports[0].Name, "it leads to %v", to)
		default:
			t.Errorf("%v: no type is known", kind)
		}
	}
	testkit.Check(t, kinds["Deployment"] == 3 && kinds["Service"] == 1 && kinds["Ingress"] == 1, "there are %v", kinds)
	for _, service := range services {
		pod := pods[service.Name]
		selects(t, service.Name, service.Spec.Selector, pod)
		port := service.Spec.Ports[0].TargetPort.StrVal
		testkit.Check(t, strings.Contains(testkit.Must(printed(pod)), "name: "+port+"\n"), "no port of the pod is named %q", port)
	}
	for name, pod := range pods {
		grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
		for _, c := range pod.Spec.Containers {
			values := map[string]string{}
			for _, e := range c.Env {
				if values[e.Name] = e.Value; e.ValueFrom != nil {
					ref := e.ValueFrom.SecretKeyRef
					testkit.Check(t, ref != nil && bytes.Contains(text, []byte("generic "+ref.Name+" ")) &&
						bytes.Contains(text, []byte("--from-literal="+ref.Key+"=")), "%s of %s: no line makes its secret", e.Name, name)
				}
			}
			testkit.Check(t, c.SecurityContext != nil && *c.SecurityContext.ReadOnlyRootFilesystem && c.Resources.Limits.Memory() != nil,
				"%s of %s has no bounds", c.Name, name)
			if name != "shop" {
				continue
			}
			drain := testkit.Must(time.ParseDuration(values["DRAIN_TIMEOUT"]))
			closing := testkit.Must(time.ParseDuration(values["CLOSE_TIMEOUT"]))
			testkit.Check(t, grace > closing && closing > drain+6*time.Second, "a pod has %s, its router %s, its handlers %s",
				grace, closing, drain)
			testkit.Check(t, c.LivenessProbe != nil && c.ReadinessProbe != nil && c.StartupProbe != nil, "it has no probes")
		}
	}
}

// read reads a document. With strict, no field may be unknown, or be there twice.
func read[T any](t *testing.T, document []byte, strict bool) (v T) {
	t.Helper()
	if strict {
		testkit.NoError(t, yaml.UnmarshalStrict(document, &v))
	} else {
		testkit.NoError(t, yaml.Unmarshal(document, &v))
	}
	return v
}

func printed(pod corev1.PodTemplateSpec) (string, error) {
	text, err := yaml.Marshal(pod)
	return string(text), err
}

func selects(t *testing.T, name string, selector map[string]string, pod corev1.PodTemplateSpec) {
	t.Helper()
	testkit.Check(t, len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)),
		"%s selects %v, and its pods have %v", name, selector, pod.Labels)
}
