package operate

// RightNames are the rights as faces name them.
var RightNames = [...]string{"none", "look without payload", "look", "operate", "approve"}

func (r Right) String() string { return RightNames[min(int(r), len(RightNames)-1)] }
