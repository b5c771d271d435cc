package chain

import "github.com/ThreeDotsLabs/watermill/message"

// Part is a part of chains. The front door composes parts of many packages with EnterParts. A type is a Part if it
// embeds a Link, so no part exports a method with a type of this package.
type Part interface{ step() Step }

// Link makes the type that embeds it a Part. A public type embeds it under an unexported name.
type Link struct{ of Step }

// LinkOf returns the Link of a part with this step.
func LinkOf(step Step) Link { return Link{step} }

func (l Link) step() Step { return l.of }

// EnterParts is Enter with the steps of parts, the first one outermost.
func EnterParts(parts ...Part) message.HandlerMiddleware {
	steps := make([]Step, len(parts))
	for i, part := range parts {
		steps[i] = part.step()
	}
	return Enter(steps...)
}

// StepOf returns the step of a part.
func StepOf(part Part) Step { return part.step() }
