package classify

import (
	"runtime/debug"

	"github.com/watermill-spillway/spillway/internal/errs/causes"
)

// judgement is the work on one error. Every method of the error and every rule is called contained: an error that
// cannot be judged must still be placed, and what its other parts say still counts.
type judgement struct {
	config  Config
	panics  int
	endless bool // the error wraps more than causes.Most errors, or itself
	left    int  // how many errors the present search may still look at
}

type (
	answerer func(error) (Verdict, bool)
	keeping  bool
)

const (
	keepFilling keeping = true  // inner answers fill what outer ones did not say
	stopAtFirst keeping = false // the outermost answer is the whole answer
)

// maxTold bounds how many panics one error reports: each of its causes may panic.
const maxTold = 8

func (j *judgement) search(err error, ask answerer, keep keeping) Verdict {
	j.left = causes.Most
	v, _ := j.tree(err, ask, keep)
	return v
}

// tree walks a chain of causes, outermost first, down to where it ends or branches.
func (j *judgement) tree(err error, ask answerer, keep keeping) (found Verdict, ok bool) {
	for err != nil {
		if j.left == 0 {
			j.endless = true
			return found, ok
		}
		j.left--
		if v, hit := j.ask(ask, err); hit {
			found, ok = found.fill(v), true
			if keep == stopAtFirst {
				return found, true
			}
		}
		branches, cause := j.unwrap(err)
		if branches != nil {
			v, hit := j.severest(branches, ask, keep)
			return found.fill(v), ok || hit
		}
		err = cause
	}
	return found, ok
}

// severest asks every branch of joined errors. One that has no answer counts as unknown, and so outweighs a discard.
func (j *judgement) severest(branches []error, ask answerer, keep keeping) (worst Verdict, ok bool) {
	first := true
	for _, branch := range branches {
		if branch == nil {
			continue
		}
		v, hit := j.tree(branch, ask, keep)
		more := v.Class.severity() - worst.Class.severity()
		if first || more > 0 || more == 0 && hit && !ok {
			worst = v
		}
		first, ok = false, ok || hit
	}
	return worst, ok
}

func (j *judgement) ask(ask answerer, err error) (v Verdict, ok bool) {
	defer j.contain()
	return ask(err)
}

func (j *judgement) unwrap(err error) (branches []error, cause error) {
	defer j.contain()
	branches, cause = causes.Of(err)
	return branches, cause
}

// contain turns a panic into no answer.
func (j *judgement) contain() {
	v := recover()
	if v == nil {
		return
	}
	j.panics++
	if j.config.OnRulePanic == nil || j.panics > maxTold {
		return
	}
	j.tell("classify: panic while judging an error: "+(&PanicError{Value: v}).Error(), debug.Stack())
}

func (j *judgement) tell(text string, stack []byte) {
	if j.config.OnRulePanic == nil {
		return
	}
	defer func() { _ = recover() }() // the hook may panic too
	j.config.OnRulePanic(text, stack)
}
