package notify_test

func dieIfAsked() {}
