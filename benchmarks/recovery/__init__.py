"""Does the advice find what was planted in generated fleets, leave healthy services alone, and price truly?"""
