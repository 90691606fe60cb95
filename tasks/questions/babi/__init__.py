"""Questions about short stories: the twenty bAbI tasks, and stories in their format.

Weston et al. (2016), "Towards AI-complete question answering". The rules of the tasks
are implemented anew; the sentences follow the published examples.
"""
